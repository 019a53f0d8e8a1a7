//! Two-dimensional convolutions of images `[b, c, h, w]` with weights
//! `[out_channels, c / groups, kernel rows, kernel columns]`.

use burn::tensor::ops::ConvOptions;
use ir::graph::Window2d;

use super::Kernels;
use super::pool::sizes;
use crate::array::Array;

/// The images convolved, `[b, out_channels, h', w']`.
pub fn forward<B: Kernels>(
    x: Array<B>,
    weight: Array<B>,
    bias: Option<Array<B>>,
    window: &Window2d,
    groups: usize,
) -> Array<B> {
    let (weight, bias) = (weight.primitive(), bias.map(Array::primitive));
    Array::from_primitive(B::conv2d(x.primitive(), weight, bias, options(window, groups)))
}

/// The gradient of the images. Only the shape of `x` is used.
pub fn input_grad<B: Kernels>(
    x: Array<B>,
    weight: Array<B>,
    grad: Array<B>,
    window: &Window2d,
    groups: usize,
) -> Array<B> {
    let (x, weight, grad) = (x.primitive(), weight.primitive(), grad.primitive());
    Array::from_primitive(B::conv2d_x_backward(x, weight, grad, options(window, groups)))
}

/// The gradient of the weight. Only the shape of `weight` is used.
pub fn weight_grad<B: Kernels>(
    x: Array<B>,
    weight: Array<B>,
    grad: Array<B>,
    window: &Window2d,
    groups: usize,
) -> Array<B> {
    let (x, weight, grad) = (x.primitive(), weight.primitive(), grad.primitive());
    Array::from_primitive(B::conv2d_weight_backward(x, weight, grad, options(window, groups)))
}

/// The gradient of the bias, `[out_channels]`.
pub fn bias_grad<B: Kernels>(grad: Array<B>) -> Array<B> {
    let (element, shape) = (grad.element(), grad.shape());
    let by_image = grad.widened().reshape(&[shape[0], shape[1], shape[2] * shape[3]]).sum_dim(2);
    by_image.sum_dim(0).flatten().cast(element)
}

fn options(window: &Window2d, groups: usize) -> ConvOptions<2> {
    ConvOptions::new(sizes(window.stride), sizes(window.padding), [1, 1], groups)
}
