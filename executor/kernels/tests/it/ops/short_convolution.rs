//! Causal convolutions over the sequence.

use executor_kernels::array::Array;
use executor_kernels::ops::activation::Function;
use executor_kernels::ops::short_convolution::ShortConvolution;
use proptest::prelude::*;

use super::{Traced, check, check_bf16, random};

/// Each output as the sum of the positions that it depends on.
fn definition([x, weight, bias]: [Traced; 3], has_silu: bool) -> Traced {
    let [batch, length, features] = [0, 1, 2].map(|dim| x.size(dim));
    let kernel = weight.size(1);
    let row = |x: Traced| x.reshape(&[1, 1, features]);
    let at = |t: usize| {
        let mut sum = row(bias.clone()).expand(&[batch, 1, features]);
        for tap in 0..kernel {
            if t + tap + 1 >= kernel {
                let from = t + tap + 1 - kernel;
                let factor = row(weight.narrow(1, tap..tap + 1).transpose());
                sum = sum + x.narrow(1, from..from + 1) * factor;
            }
        }
        sum
    };
    let z = Array::concat((0..length).map(at).collect(), 1);
    if has_silu { z.clone() * z.sigmoid() } else { z }
}

proptest! {
    #[test]
    fn convolutions_and_gradients_are_as_defined(
        (batch, length, features, kernel) in (1usize..3, 1usize..8, 1usize..5, 1usize..6),
        has_silu: bool,
        seed: u16,
    ) {
        let x = random(&[batch, length, features], seed.into());
        let weight = random(&[features, kernel], u64::from(seed) + 1);
        let bias = random(&[features], u64::from(seed) + 2);
        let convolution = ShortConvolution {
            weight: weight.clone(),
            bias: Some(bias.clone()),
            function: has_silu.then_some(Function::Silu),
        };
        let y = convolution.forward(x.clone());
        check([&x, &weight, &bias], |inputs| definition(inputs, has_silu), &y, |grad| {
            let [of_weight, of_bias] = convolution.weight_grad(x.clone(), grad.clone());
            [convolution.input_grad(x.clone(), grad), of_weight, of_bias]
        });
    }
}

#[test]
fn in_bf16_convolutions_are_rounded_once() {
    let [x, grad] = [1, 2].map(|seed| random(&[2, 6, 8], seed));
    check_bf16([&x, &grad, &random(&[8, 4], 3)], 1.0 / 64.0, |[x, grad, weight]| {
        let function = Some(Function::Silu);
        let convolution = ShortConvolution { weight, bias: None, function };
        let [of_weight, _] = convolution.weight_grad(x.clone(), grad.clone());
        vec![convolution.forward(x.clone()), convolution.input_grad(x, grad), of_weight]
    });
}
