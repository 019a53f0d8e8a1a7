//! Dropout: elements zeroed at random, the same ones in every layout.

use burn::tensor::backend::Backend;

use crate::array::{Array, Element};
use crate::data::random::{from_0_to_1, hash};

/// What elements of `x`, whose first dimension has samples, are multiplied by: zero for a share `rate` of
/// them, and for the others what keeps the mean. Depends on `key` and on the number of each sample, which is
/// `first` and so on, and on nothing else: backward, and recompute, find the same ones again.
///
/// # Source
///
/// Srivastava et al. 2014, *Dropout*, in the inverted form that PyTorch has.
pub fn mask<B: Backend>(
    shape: &[usize],
    rate: f64,
    key: [u64; 3],
    first: u64,
    element: Element,
    device: &B::Device,
) -> Array<B> {
    let of_sample: u64 = shape[1..].iter().product::<usize>() as u64;
    let kept = 1.0 / (1.0 - rate);
    let [seed, block, op] = key;
    let values = (first..first + shape[0] as u64).flat_map(|sample| {
        let sample = hash([seed, block, op, sample]);
        (0..of_sample).map(
            move |place| {
                if from_0_to_1(hash([sample, place])) < rate { 0.0 } else { kept }
            },
        )
    });
    Array::from_f64(values.collect(), shape, element, device)
}
