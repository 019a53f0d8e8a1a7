//! Functions of registers.

use super::lanes::Lanes;

type OfOne = dyn Fn(&Lanes) -> Lanes + Send + Sync;
type OfTwo = dyn Fn(&Lanes, &Lanes) -> Lanes + Send + Sync;
type OfThree = dyn Fn(&Lanes, &Lanes, &Lanes) -> Lanes + Send + Sync;
type OfFour = dyn Fn(&Lanes, &Lanes, &Lanes, &Lanes) -> Lanes + Send + Sync;

/// A function that computes one register from others.
pub(super) enum Function {
    One(Box<OfOne>),
    Two(Box<OfTwo>),
    Three(Box<OfThree>),
    Four(Box<OfFour>),
}

pub(super) fn one(f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::One(Box::new(move |a| std::array::from_fn(|lane| f(a[lane]))))
}

pub(super) fn two(f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::Two(Box::new(move |a, b| std::array::from_fn(|lane| f(a[lane], b[lane]))))
}

pub(super) fn three(f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::Three(Box::new(move |a, b, c| {
        std::array::from_fn(|lane| f(a[lane], b[lane], c[lane]))
    }))
}

pub(super) fn four(f: impl Fn(u64, u64, u64, u64) -> u64 + Send + Sync + 'static) -> Function {
    Function::Four(Box::new(move |a, b, c, d| {
        std::array::from_fn(|lane| f(a[lane], b[lane], c[lane], d[lane]))
    }))
}

impl Function {
    /// Number of source registers.
    pub(super) fn arity(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
            Self::Three(_) => 3,
            Self::Four(_) => 4,
        }
    }
}
