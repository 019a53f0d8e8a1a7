//! Convolutions.

use executor_kernels::ops::conv;
use ir::graph::Window2d;
use proptest::prelude::*;

use super::{Plain, assert_close, random};

/// `y[b, o, i, j] = bias[o] + sum of x[b, c, i stride + di - padding, ..] weight[o, c, di, dj]`.
fn definition(x: &Plain, weight: &Plain, bias: &Plain, window: &Window2d, groups: usize) -> Plain {
    let (xs, ws) = (x.shape(), weight.shape());
    let out = window.output([xs[2] as u64, xs[3] as u64]).expect("the kernel fits");
    let (images, kernels, biases) = (x.to_f64(), weight.to_f64(), bias.to_f64());
    let channels_per_output = ws[0] / groups;
    let at = |b: usize, c: usize, rows: [usize; 2]| {
        let place = [0, 1].map(|axis| rows[axis].checked_sub(window.padding[axis] as usize));
        match place {
            [Some(i), Some(j)] if i < xs[2] && j < xs[3] => {
                images[((b * xs[1] + c) * xs[2] + i) * xs[3] + j]
            }
            _ => 0.0,
        }
    };
    let mut values = Vec::new();
    for b in 0..xs[0] {
        for o in 0..ws[0] {
            for i in 0..out[0] as usize {
                for j in 0..out[1] as usize {
                    let mut sum = biases[o];
                    for c in 0..ws[1] {
                        for di in 0..ws[2] {
                            for dj in 0..ws[3] {
                                let channel = o / channels_per_output * ws[1] + c;
                                let [si, sj] = window.stride.map(|stride| stride as usize);
                                let image = at(b, channel, [i * si + di, j * sj + dj]);
                                sum += image * kernels[((o * ws[1] + c) * ws[2] + di) * ws[3] + dj];
                            }
                        }
                    }
                    values.push(sum);
                }
            }
        }
    }
    Plain::from_f64(
        values,
        &[xs[0], ws[0], out[0] as usize, out[1] as usize],
        x.element(),
        &x.device(),
    )
}

proptest! {
    /// A convolution is linear in images and in weights, and its gradients are the transposes.
    #[test]
    fn convolutions_and_gradients_are_as_defined(
        (b, c, o, groups) in (1usize..3, 1usize..3, 1usize..3, 1usize..3),
        (h, w) in (3usize..7, 3usize..7),
        kernel in [1u64..4, 1u64..4], stride in [1u64..3, 1u64..3], padding in [0u64..2, 0u64..2],
        seed: u16,
    ) {
        let seed = u64::from(seed);
        let window = Window2d { kernel, stride, padding, dilation: [1, 1], rounds_up: false };
        let (shape, out_channels) = ([b, c * groups, h, w], o * groups);
        let weight_shape = [out_channels, c, kernel[0] as usize, kernel[1] as usize];
        let [x, other_x] = [0, 1].map(|next| random(&shape, seed + next));
        let [weight, other_weight] = [2, 3].map(|next| random(&weight_shape, seed + next));
        let bias = random(&[out_channels], seed + 4);
        let y = conv::forward(x.clone(), weight.clone(), Some(bias.clone()), &window, groups);
        assert_close(&y, &definition(&x, &weight, &bias, &window, groups), 1e-11);

        let grad = random(&y.shape(), seed + 5);
        let input_grad =
            conv::input_grad(x.clone(), weight.clone(), grad.clone(), &window, groups);
        let moved = conv::forward(other_x.clone(), weight.clone(), None, &window, groups);
        assert_close(&(other_x * input_grad).sum(), &(moved * grad.clone()).sum(), 1e-10);
        let weight_grad =
            conv::weight_grad(x.clone(), weight.clone(), grad.clone(), &window, groups);
        let moved = conv::forward(x.clone(), other_weight.clone(), None, &window, groups);
        assert_close(&(other_weight * weight_grad).sum(), &(moved * grad.clone()).sum(), 1e-10);
        let without = conv::forward(x, weight, None, &window, groups);
        let expected = ((y - without) * grad.clone()).sum();
        assert_close(&(bias * conv::bias_grad(grad)).sum(), &expected, 1e-10);
    }
}
