//! Pseudorandom numbers that depend only on their indices.

use std::f64::consts::TAU;

use burn::tensor::FloatDType;
use burn_flex::{Flex, FlexDevice};

use crate::array::Array;

/// 2^64 over the golden ratio: keeps the fixed point 0 of [`mix`] away from small indices.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A number for a tuple of indices, evenly spread over all of 64 bits.
pub fn hash<const N: usize>(indices: [u64; N]) -> u64 {
    indices.into_iter().fold(0, |state, index| mix((state ^ index).wrapping_add(GOLDEN)))
}

/// Propagates a change of any bit to all bits; one to one.
///
/// # Source
///
/// Steele, Lea and Flood 2014, *Fast Splittable Pseudorandom Number Generators*, with the constants of
/// Stafford's variant 13, as in SplitMix64.
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number in [0, 1), of the 53 bits that an `f64` holds.
pub fn from_0_to_1(number: u64) -> f64 {
    const STEP: f64 = 1.0 / (1u64 << 53) as f64;
    (number >> 11) as f64 * STEP
}

/// A normally distributed number from two that are uniform in [0, 1).
///
/// # Source
///
/// Box and Muller 1958, *A Note on the Generation of Random Normal Deviates*.
pub fn standard_normal(u: f64, v: f64) -> f64 {
    (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
}

/// An array on the CPU.
pub type Plain = Array<Flex>;

/// Uniform numbers between -2 and 2 in fp64, determined by the seed.
pub fn random(shape: &[usize], seed: u64) -> Plain {
    let count = shape.iter().product::<usize>() as u64;
    let values = (0..count).map(|index| 4.0 * from_0_to_1(hash([seed, index])) - 2.0);
    Array::from_f64(values.collect(), shape, FloatDType::F64, &FlexDevice)
}

/// Uniform whole numbers below `bound`, determined by the seed.
pub fn random_indices(count: usize, bound: u32, seed: u64) -> Vec<u32> {
    let draw = |index| (from_0_to_1(hash([seed, index])) * f64::from(bound)) as u32;
    (0..count as u64).map(draw).collect()
}
