//! Normalisations.

use executor_kernels::array::Array;
use executor_kernels::ops::norm::{self, Statistics};
use ir::graph::NormKind;
use proptest::prelude::*;

use super::{Traced, assert_close, check, check_bf16, random};

const EPSILON: f64 = 1e-5;

/// Normalised along dimension 1, as the kind's paper writes it.
fn definition(kind: NormKind, x: Traced) -> Traced {
    let centred = match kind {
        NormKind::RmsNorm => x,
        _ => x.clone() - x.mean_dim(1),
    };
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    centred / variance.shift(EPSILON).sqrt()
}

proptest! {
    #[test]
    fn norms_and_gradients_are_as_defined(rows in 1usize..5, width in 2usize..9, seed: u16) {
        let x = random(&[rows, width], seed.into());
        let weight = random(&[width], u64::from(seed) + 1);
        let bias = random(&[width], u64::from(seed) + 2);
        for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
            let parameters = (Some(weight.clone()), Some(bias.clone()));
            let (y, statistics) =
                norm::forward(kind, x.clone(), parameters.0, parameters.1, EPSILON);
            let affine = |[x, weight, bias]: [Traced; 3]| {
                let row = [1, width];
                definition(kind, x) * weight.reshape(&row) + bias.reshape(&row)
            };
            check([&x, &weight, &bias], affine, &y, |grad| {
                let weight = Some(weight.clone());
                let input_grad =
                    norm::input_grad(kind, x.clone(), &statistics, weight, grad.clone());
                let (scale, shift) = norm::weight_grad(kind, x.clone(), &statistics, grad);
                [input_grad, scale, shift]
            });
        }
    }

    #[test]
    fn channels_are_normalised_over_batch_and_space(
        (b, c, h, w) in (1usize..4, 1usize..4, 1usize..4, 2usize..4), seed: u16,
    ) {
        let x = random(&[b, c, h, w], seed.into());
        let weight = random(&[c], u64::from(seed) + 1);
        let bias = random(&[c], u64::from(seed) + 2);
        let parameters = (Some(weight.clone()), Some(bias.clone()));
        let (y, statistics) =
            norm::batch_norm_forward(x.clone(), parameters.0, parameters.1, EPSILON);
        let by_channel = |[x, weight, bias]: [Traced; 3]| {
            let (channel, mean) = ([1, c, 1, 1], |x: Traced| x.mean_dim(0).mean_dim(2).mean_dim(3));
            let centred = x.clone() - mean(x);
            let variance = mean(centred.clone() * centred.clone());
            let normalised = centred / variance.shift(EPSILON).sqrt();
            normalised * weight.reshape(&channel) + bias.reshape(&channel)
        };
        check([&x, &weight, &bias], by_channel, &y, |grad| {
            let weight = Some(weight.clone());
            let input_grad =
                norm::batch_norm_input_grad(x.clone(), &statistics, weight, grad.clone());
            let (scale, shift) = norm::batch_norm_weight_grad(x.clone(), &statistics, grad);
            [input_grad, scale, shift]
        });
    }

    /// Two ranks that hold halves of the features, with sums over both in between.
    #[test]
    fn parts_of_rows_are_normalised_as_the_whole(rows in 1usize..5, half in 1usize..6, seed: u16) {
        let width = 2 * half;
        let x = random(&[rows, width], seed.into());
        let weight = random(&[width], u64::from(seed) + 1);
        let grad = random(&[rows, width], u64::from(seed) + 2);
        let kind = NormKind::RmsNorm;
        let (y, statistics) = norm::forward(kind, x.clone(), Some(weight.clone()), None, EPSILON);
        let input_grad =
            norm::input_grad(kind, x.clone(), &statistics, Some(weight.clone()), grad.clone());

        let halves = |array: &Array<_>, dim| array.split(dim, &[half, half]);
        let (xs, grads) = (halves(&x, 1), halves(&grad, 1));
        let weights: Vec<_> = halves(&weight, 0).into_iter().map(Some).collect();
        let sums = norm::sum_of_squares(xs[0].clone()) + norm::sum_of_squares(xs[1].clone());
        let statistics = Statistics::of_sum_of_squares(sums, width, EPSILON);
        let part = |rank: usize| {
            norm::normalise(xs[rank].clone(), &statistics, weights[rank].clone(), None)
        };
        assert_close(&Array::concat(vec![part(0), part(1)], 1), &y, 1e-12);
        let inputs = |rank: usize| (xs[rank].clone(), weights[rank].clone(), grads[rank].clone());
        let projection = |rank: usize| {
            let (x, weight, grad) = inputs(rank);
            norm::projection(x, &statistics, weight, grad)
        };
        let projections = projection(0) + projection(1);
        let part = |rank: usize| {
            let ((x, weight, grad), along) = (inputs(rank), projections.clone());
            norm::input_grad_of_projection(x, &statistics, weight, grad, along, width)
        };
        assert_close(&Array::concat(vec![part(0), part(1)], 1), &input_grad, 1e-12);
    }
}

#[test]
fn in_bf16_norms_are_rounded_once() {
    let [x, grad] = [1, 2].map(|seed| random(&[8, 64], seed));
    let weight = random(&[64], 3);
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        check_bf16([&x, &grad, &weight], 1.0 / 256.0, |[x, grad, weight]| {
            let weight = Some(weight);
            let (y, statistics) = norm::forward(kind, x.clone(), weight.clone(), None, EPSILON);
            let input_grad = norm::input_grad(kind, x.clone(), &statistics, weight, grad.clone());
            let (scale, shift) = norm::weight_grad(kind, x, &statistics, grad);
            vec![y, input_grad, scale, shift]
        });
    }
}
