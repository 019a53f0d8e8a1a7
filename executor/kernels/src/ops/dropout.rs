//! Dropout: elements zeroed at random, the same ones in every layout.

use burn::tensor::backend::Backend;

use crate::array::{Array, Element};
use crate::random::{from_0_to_1, hash};

/// Which share of a tensor's elements is zeroed, and by which random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share.
    pub rate: f64,
    /// The run's seed, the block, and the operator in it.
    pub key: [u64; 3],
    /// The number of the first sample; those after it follow.
    pub first_sample: u64,
}

/// The part of a tensor's dimension that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extract {
    /// Which of the whole dimension's indices, in the order in which they are here.
    pub indices: Vec<usize>,
    /// How many the whole dimension has.
    pub of: usize,
}

impl Extract {
    /// All of a dimension.
    pub fn whole(size: usize) -> Self {
        Self { indices: (0..size).collect(), of: size }
    }
}

impl Dropout {
    /// What the elements of `samples` samples, of whose other dimensions `dims` are here, are multiplied by: zero for
    /// a share of them, and for the others what keeps the mean. An element's factor depends on its sample and on its
    /// place in the whole of it, and on nothing else: backward, recompute and every layout find the same one.
    ///
    /// # Source
    ///
    /// Srivastava et al. 2014, *Dropout*, in the inverted form that PyTorch has.
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

/// Where each element that is here stands in the whole, row by row.
fn places(dims: &[Extract]) -> Vec<u64> {
    let mut places = vec![0];
    for dim in dims {
        let inner = |row: u64| dim.indices.iter().map(move |i| row * dim.of as u64 + *i as u64);
        places = places.into_iter().flat_map(inner).collect();
    }
    places
}
