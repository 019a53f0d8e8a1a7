//! Numbers that look random, and are the same each time.

use burn::tensor::FloatDType;
use burn_flex::{Flex, FlexDevice};

use crate::array::Array;

/// An array on the CPU.
pub type Plain = Array<Flex>;

/// Numbers between -2 and 2 in fp64, the same for the same seed.
pub fn random(shape: &[usize], seed: u64) -> Plain {
    let count = shape.iter().product::<usize>() as u64;
    let values = (0..count).map(|index| 4.0 * uniform(seed.wrapping_mul(1 << 20) + index) - 2.0);
    Array::from_f64(values.collect(), shape, FloatDType::F64, &FlexDevice)
}

/// Whole numbers below `bound`, the same for the same seed.
pub fn random_indices(count: usize, bound: u32, seed: u64) -> Vec<u32> {
    let draw = |index| (uniform(seed.wrapping_mul(1 << 20) + index) * f64::from(bound)) as u32;
    (0..count as u64).map(draw).collect()
}

/// A number from 0 to 1 that depends on `seed` in no visible way: SplitMix64.
fn uniform(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
