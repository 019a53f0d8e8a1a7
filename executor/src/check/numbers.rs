//! Numbers that look random, and are the same each time.

use burn::tensor::FloatDType;
use burn_flex::{Flex, FlexDevice};

use crate::array::Array;
use crate::data::random::{from_0_to_1, hash};

/// An array on the CPU.
pub type Plain = Array<Flex>;

/// Numbers between -2 and 2 in fp64, the same for the same seed.
pub fn random(shape: &[usize], seed: u64) -> Plain {
    let count = shape.iter().product::<usize>() as u64;
    let values = (0..count).map(|index| 4.0 * from_0_to_1(hash([seed, index])) - 2.0);
    Array::from_f64(values.collect(), shape, FloatDType::F64, &FlexDevice)
}

/// Whole numbers below `bound`, the same for the same seed.
pub fn random_indices(count: usize, bound: u32, seed: u64) -> Vec<u32> {
    let draw = |index| (from_0_to_1(hash([seed, index])) * f64::from(bound)) as u32;
    (0..count as u64).map(draw).collect()
}
