//! Linear layers, one or one for each expert.

use executor_kernels::array::Array;
use executor_kernels::ops::experts::ExpertCounts;
use executor_kernels::ops::linear;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Traced, assert_close, check, random};

proptest! {
    #[test]
    fn layers_and_gradients_are_as_defined(
        (rows, inputs, outputs) in (1usize..5, 1usize..6, 1usize..6), seed: u16,
    ) {
        let x = random(&[rows, inputs], seed.into());
        let weight = random(&[inputs, outputs], u64::from(seed) + 1);
        let bias = random(&[outputs], u64::from(seed) + 2);
        let y = linear::forward(x.clone(), weight.clone(), Some(bias.clone()));
        let definition = |[x, weight, bias]: [Traced; 3]| {
            let columns = weight.transpose().reshape(&[1, outputs, inputs]);
            let products = x.reshape(&[rows, 1, inputs]) * columns;
            products.sum_dim(2).reshape(&[rows, outputs]) + bias.reshape(&[1, outputs])
        };
        check([&x, &weight, &bias], definition, &y, |grad| {
            [
                linear::input_grad(grad.clone(), weight.clone()),
                linear::weight_grad(x.clone(), grad.clone()),
                linear::bias_grad(grad),
            ]
        });
    }

    /// Experts compute what one layer computes for their rows; those without rows have gradients of zero.
    #[test]
    fn each_expert_is_a_layer_of_its_own(
        counts in vec(0usize..4, 1..5), (inputs, outputs) in (1usize..6, 1usize..6), seed: u16,
    ) {
        let (rows, num_experts) = (counts.iter().sum(), counts.len());
        let x = random(&[rows, inputs], seed.into());
        let weight = random(&[num_experts, inputs, outputs], u64::from(seed) + 1);
        let bias = random(&[num_experts, outputs], u64::from(seed) + 2);
        let grad = random(&[rows, outputs], u64::from(seed) + 3);
        let known = ExpertCounts::known(counts.clone(), &x.device());
        let y = linear::grouped_forward(x.clone(), &known, weight.clone(), Some(bias.clone()));
        let x_grad = linear::grouped_input_grad(grad.clone(), &known, weight.clone());
        let weight_grad = linear::grouped_weight_grad(x.clone(), &known, grad.clone());
        let bias_grad = linear::grouped_bias_grad(&known, grad.clone());
        prop_assert_eq!(y.shape(), [rows, outputs]);
        prop_assert_eq!(x_grad.shape(), [rows, inputs]);
        let mut start = 0;
        for (expert, count) in counts.iter().enumerate() {
            let of = |array: &Array<_>| array.narrow(0, expert..expert + 1);
            let (w_grad, b_grad) = (of(&weight_grad), of(&bias_grad));
            let range = start..start + count;
            start += count;
            if *count == 0 {
                prop_assert!(w_grad.to_f64().iter().chain(&b_grad.to_f64()).all(|g| *g == 0.0));
                continue;
            }
            let rows = |array: &Array<_>| array.narrow(0, range.clone());
            let w = of(&weight).reshape(&[inputs, outputs]);
            let b = of(&bias).reshape(&[outputs]);
            let (x, grad) = (rows(&x), rows(&grad));
            assert_close(&rows(&y), &linear::forward(x.clone(), w.clone(), Some(b)), 1e-12);
            assert_close(&rows(&x_grad), &linear::input_grad(grad.clone(), w), 1e-12);
            let expected = linear::weight_grad(x, grad.clone());
            assert_close(&w_grad.reshape(&[inputs, outputs]), &expected, 1e-12);
            assert_close(&b_grad.reshape(&[outputs]), &linear::bias_grad(grad), 1e-12);
        }
    }
}
