//! Comparison of a device's results with the same computation in fp64 on the CPU, from the same inputs.

use burn::tensor::FloatDType;

use crate::array::{Array, Element};
use crate::ops::Kernels;
use crate::random::Plain;
use crate::trials::OperatorTrial;

/// Largest error of a device's results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceComparison {
    /// The largest [`error`] of all elements; infinite where shapes differ.
    pub error: f64,
    /// Position of that element: the number of the output, and of the element in row-major order.
    pub place: [usize; 2],
    /// The device's value there.
    pub actual: f64,
    /// The fp64 value there.
    pub expected: f64,
}

/// Compares the outputs of `trial` on a device in `element` with those in fp64 on the CPU; both take `inputs` rounded
/// to `element`.
pub fn compare<B: Kernels>(
    trial: &impl OperatorTrial,
    inputs: &[Plain],
    element: Element,
    device: &B::Device,
) -> DeviceComparison {
    let rounded: Vec<Plain> = inputs.iter().map(|input| input.clone().cast(element)).collect();
    let given = rounded.iter().map(|input| Array::from_data(input.clone().into_data(), device));
    let outputs: Vec<Array<B>> = trial.run(given.collect());
    let given = rounded.into_iter().map(|input| input.cast(FloatDType::F64));
    let exact: Vec<Plain> = trial.run(given.collect());
    let mut worst = DeviceComparison { error: 0.0, place: [0, 0], actual: 0.0, expected: 0.0 };
    for (output, (actual, expected)) in outputs.iter().zip(&exact).enumerate() {
        if actual.shape() != expected.shape() {
            let place = [output, 0];
            return DeviceComparison {
                error: f64::INFINITY,
                place,
                actual: f64::NAN,
                expected: f64::NAN,
            };
        }
        let pairs = actual.to_f64().into_iter().zip(expected.to_f64());
        for (index, (actual, expected)) in pairs.enumerate() {
            let error = error(actual, expected);
            if error > worst.error {
                worst = DeviceComparison { error, place: [output, index], actual, expected };
            }
        }
    }
    worst
}

/// Error of a number: relative above 1, absolute below; infinite where one of the two is NaN, or where infinities
/// differ.
pub fn error(actual: f64, expected: f64) -> f64 {
    if actual.is_infinite() && actual.total_cmp(&expected).is_eq() {
        return 0.0;
    }
    let error = (actual - expected).abs() / expected.abs().max(1.0);
    if error.is_nan() { f64::INFINITY } else { error }
}
