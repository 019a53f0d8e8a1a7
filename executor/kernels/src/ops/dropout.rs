//! Dropout: elements zeroed at random, the same ones in every layout.

use burn::tensor::backend::Backend;

use crate::array::{Array, Element};
use crate::random::{from_0_to_1, hash};

/// Dropout rate of a tensor, and the key of its random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability that an element is zeroed.
    pub rate: f64,
    /// The run's seed, the block, and the operator in it.
    pub key: [u64; 3],
    /// The number of the first sample; the others follow.
    pub first_sample: u64,
}

/// The part of a tensor's dimension that this rank holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extract {
    /// Indices of the whole dimension, in the order in which this rank holds them.
    pub indices: Vec<usize>,
    /// Size of the whole dimension.
    pub of: usize,
}

impl Extract {
    /// All of a dimension.
    pub fn whole(size: usize) -> Self {
        Self { indices: (0..size).collect(), of: size }
    }
}

impl Dropout {
    /// The dropout factor of each element of `samples` samples, of which this rank holds the parts `dims` of the other
    /// dimensions. A factor is zero with probability `rate`, else the number that preserves the mean. It depends only
    /// on the sample and on the element's position in the whole sample, so backward, recompute and every layout compute
    /// the same factor.
    ///
    /// # Source
    ///
    /// Srivastava et al. 2014, *Dropout*, in the inverted form that PyTorch uses.
    pub fn mask<B: Backend>(
        &self,
        samples: usize,
        dims: &[Extract],
        element: Element,
        device: &B::Device,
    ) -> Array<B> {
        let kept = 1.0 / (1.0 - self.rate);
        let [seed, block, op] = self.key;
        let places = places(dims);
        let samples_here = self.first_sample..self.first_sample + samples as u64;
        let values = samples_here.flat_map(|sample| {
            let sample = hash([seed, block, op, sample]);
            let factor = move |place: &u64| {
                if from_0_to_1(hash([sample, *place])) < self.rate { 0.0 } else { kept }
            };
            places.iter().map(factor)
        });
        let mut shape = vec![samples];
        shape.extend(dims.iter().map(|dim| dim.indices.len()));
        Array::from_f64(values.collect(), &shape, element, device)
    }
}

/// The position of each local element in the whole sample, row by row.
fn places(dims: &[Extract]) -> Vec<u64> {
    let mut places = vec![0];
    for dim in dims {
        let inner = |row: u64| dim.indices.iter().map(move |i| row * dim.of as u64 + *i as u64);
        places = places.into_iter().flat_map(inner).collect();
    }
    places
}
