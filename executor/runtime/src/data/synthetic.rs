//! Made-up samples, for models that do not read tokens.

use executor_kernels::random::{from_0_to_1, hash, standard_normal};

/// How made-up values are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleDistribution {
    /// Evenly from 0 to 1, without 1.
    Uniform,
    /// Normally, with mean 0 and variance 1.
    StandardNormal,
}

/// Made-up samples, by global index, without end. A longer vector begins with the shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticSamples {
    /// How values are distributed.
    pub distribution: SampleDistribution,
    /// Which of the random samples.
    pub seed: u64,
}

/// What a value of a sample is for. Each has numbers of its own.
#[derive(Clone, Copy)]
enum Part {
    Input,
    Target,
    Class,
}

impl SyntheticSamples {
    /// The first `len` values that go into the model.
    pub fn input(&self, index: u64, len: usize) -> Vec<f64> {
        self.values(Part::Input, index, len)
    }

    /// The first `len` values that should come out.
    pub fn target(&self, index: u64, len: usize) -> Vec<f64> {
        self.values(Part::Target, index, len)
    }

    /// The class that should come out, below `num_classes`, which must not be zero; each is equally
    /// likely.
    pub fn class(&self, index: u64, num_classes: u32) -> u32 {
        assert!(num_classes > 0, "a sample has a class");
        let number = hash([self.seed, Part::Class as u64, index]);
        // The high half of the product: as even as the 64 bits are, without a division.
        ((u128::from(number) * u128::from(num_classes)) >> u64::BITS) as u32
    }

    fn values(&self, part: Part, index: u64, len: usize) -> Vec<f64> {
        let sample = hash([self.seed, part as u64, index]);
        let uniform = |number| from_0_to_1(hash([sample, number]));
        match self.distribution {
            SampleDistribution::Uniform => (0..len as u64).map(uniform).collect(),
            SampleDistribution::StandardNormal => (0..len as u64)
                .map(|element| standard_normal(uniform(2 * element), uniform(2 * element + 1)))
                .collect(),
        }
    }
}
