//! Synthetic samples, for models that take no tokens.

use executor_kernels::random::{from_0_to_1, hash, standard_normal};

/// Synthetic samples, by global index, without end. Their values are normal, with mean 0 and variance 1; the values of
/// a shorter vector are a prefix of those of a longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticSamples {
    /// Seed of the random samples.
    pub seed: u64,
}

/// Use of a value in a sample. Each use has its own random numbers.
#[derive(Clone, Copy)]
enum ValueUse {
    Input,
    Target,
    Class,
}

impl SyntheticSamples {
    /// The first `len` input values of a sample.
    pub fn input(&self, index: u64, len: usize) -> Vec<f64> {
        self.values(ValueUse::Input, index, len)
    }

    /// The first `len` target values of a sample.
    pub fn target(&self, index: u64, len: usize) -> Vec<f64> {
        self.values(ValueUse::Target, index, len)
    }

    /// The target class of a sample, below `num_classes`, which must not be zero; classes are equally likely.
    pub fn class(&self, index: u64, num_classes: u32) -> u32 {
        assert!(num_classes > 0, "a sample has a class");
        let number = hash([self.seed, ValueUse::Class as u64, index]);
        // The high half of the product: as uniform as the 64 bits are, without a division.
        ((u128::from(number) * u128::from(num_classes)) >> u64::BITS) as u32
    }

    fn values(self, value_use: ValueUse, index: u64, len: usize) -> Vec<f64> {
        let sample = hash([self.seed, value_use as u64, index]);
        let uniform = |number| from_0_to_1(hash([sample, number]));
        let value = |element| standard_normal(uniform(2 * element), uniform(2 * element + 1));
        (0..len as u64).map(value).collect()
    }
}
