//! The operators against their definitions, which burn's autodiff differentiates.

use burn::backend::Autodiff;
use burn::tensor::FloatDType;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensorOps;
use burn_flex::Flex;
use executor_kernels::array::Array;
use executor_kernels::comparison::error;

pub(crate) use executor_kernels::random::{Plain, random, random_indices};

mod activation;
mod attention;
mod dropout;
mod embedding;
mod experts;
mod kernels;
mod linear;
mod loss;
mod norm;
mod recurrence;
mod rotary;
mod short_convolution;

/// An array whose operations are recorded.
type Traced = Array<Autodiff<Flex>>;

/// Holds an output against what `definition` computes from `inputs`, and gradients, made from that of the
/// output, against what autodiff finds for it.
#[track_caller]
fn check<const N: usize>(
    inputs: [&Plain; N],
    definition: impl Fn([Traced; N]) -> Traced,
    output: &Plain,
    gradients: impl FnOnce(Plain) -> [Plain; N],
) {
    let grad = random(&output.shape(), 99);
    let traced = inputs.map(|input| {
        let tensor = Autodiff::<Flex>::from_inner(input.clone().primitive());
        Array::from_primitive(Autodiff::<Flex>::float_set_require_grad(tensor, true))
    });
    let expected = definition(traced.clone());
    let value = Array::from_primitive(Autodiff::<Flex>::inner(expected.clone().primitive()));
    assert_close(output, &value, 1e-11);
    let cotangent = Traced::from_primitive(Autodiff::<Flex>::from_inner(grad.clone().primitive()));
    let recorded = Autodiff::<Flex>::backward((expected * cotangent).sum().primitive());
    for (input, (traced, gradient)) in traced.into_iter().zip(gradients(grad)).enumerate() {
        let expected = Autodiff::<Flex>::grad(&traced.primitive(), &recorded)
            .unwrap_or_else(|| panic!("input {input} takes part in the definition"));
        assert_close(&gradient, &Array::from_primitive(expected), 1e-10);
    }
}

/// Fails unless shapes agree, and numbers to `tolerance`, relative above 1.
#[track_caller]
pub(crate) fn assert_close(actual: &Plain, expected: &Plain, tolerance: f64) {
    assert_eq!(actual.shape(), expected.shape());
    for (index, (a, b)) in actual.to_f64().into_iter().zip(expected.to_f64()).enumerate() {
        assert!(error(a, b) <= tolerance, "element {index} is {a}, but should be {b}");
    }
}

/// Holds a function of arrays in bf16 against itself in fp64 on the same numbers.
#[track_caller]
fn check_bf16<const N: usize>(
    inputs: [&Plain; N],
    tolerance: f64,
    function: impl Fn([Plain; N]) -> Vec<Plain>,
) {
    check_rounded(FloatDType::BF16, inputs, tolerance, function);
}

/// Holds a function of arrays in `element` against itself in fp64 on the same numbers.
#[track_caller]
fn check_rounded<const N: usize>(
    element: FloatDType,
    inputs: [&Plain; N],
    tolerance: f64,
    function: impl Fn([Plain; N]) -> Vec<Plain>,
) {
    let rounded = inputs.map(|input| input.clone().cast(element));
    let exact = function(rounded.clone().map(|input| input.cast(FloatDType::F64)));
    for (actual, expected) in function(rounded).iter().zip(&exact) {
        assert_close(actual, expected, tolerance);
    }
}
