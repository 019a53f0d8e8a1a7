//! Pooling of images `[b, c, h, w]`.

use burn::tensor::ops::IntTensor;
use ir::graph::Window2d;

use super::Kernels;
use crate::array::Array;

/// Position of each largest element in its image.
#[derive(Clone, Debug)]
pub struct Places<B: Kernels>(IntTensor<B>);

/// The largest element of each window, and its position. Padding is never the largest.
pub fn max_forward<B: Kernels>(x: Array<B>, window: &Window2d) -> (Array<B>, Places<B>) {
    let [kernel, stride, padding] = [window.kernel, window.stride, window.padding].map(sizes);
    let pooled = B::max_pool2d_with_indices(x.primitive(), kernel, stride, padding, [1, 1], false);
    (Array::from_primitive(pooled.output), Places(pooled.indices))
}

/// The gradient of the input of [`max_forward`].
pub fn max_input_grad<B: Kernels>(
    x: Array<B>,
    places: Places<B>,
    window: &Window2d,
    grad: Array<B>,
) -> Array<B> {
    let [kernel, stride, padding] = [window.kernel, window.stride, window.padding].map(sizes);
    let (x, grad) = (x.primitive(), grad.primitive());
    let gradient = B::max_pool2d_with_indices_backward(
        x,
        kernel,
        stride,
        padding,
        [1, 1],
        false,
        grad,
        places.0,
    );
    Array::from_primitive(gradient.x_grad)
}

/// The mean of each window, padding counted as zeros.
pub fn average_forward<B: Kernels>(x: Array<B>, window: &Window2d) -> Array<B> {
    let [kernel, stride, padding] = [window.kernel, window.stride, window.padding].map(sizes);
    Array::from_primitive(B::avg_pool2d(x.primitive(), kernel, stride, padding, true, false))
}

/// The gradient of the input of [`average_forward`], images of shape `shape`.
pub fn average_input_grad<B: Kernels>(
    shape: &[usize],
    window: &Window2d,
    grad: Array<B>,
) -> Array<B> {
    let [kernel, stride, padding] = [window.kernel, window.stride, window.padding].map(sizes);
    let x = of_shape(shape, &grad).primitive();
    let grad = grad.primitive();
    Array::from_primitive(B::avg_pool2d_backward(x, grad, kernel, stride, padding, true, false))
}

/// The means of windows that give `output` rows and columns: output `i` of `n` covers rows `floor(i h / n)` to `ceil((i
/// + 1) h / n)`.
pub fn adaptive_average_forward<B: Kernels>(x: Array<B>, output: [u64; 2]) -> Array<B> {
    Array::from_primitive(B::adaptive_avg_pool2d(x.primitive(), sizes(output)))
}

/// The gradient of the input of [`adaptive_average_forward`], images of shape `shape`.
pub fn adaptive_average_input_grad<B: Kernels>(shape: &[usize], grad: Array<B>) -> Array<B> {
    let x = of_shape(shape, &grad).primitive();
    Array::from_primitive(B::adaptive_avg_pool2d_backward(x, grad.primitive()))
}

/// An array of which burn reads only the shape.
fn of_shape<B: Kernels>(shape: &[usize], grad: &Array<B>) -> Array<B> {
    Array::zeros(shape, grad.element(), &grad.device())
}

/// Rows and columns in burn's type.
pub(super) fn sizes(pair: [u64; 2]) -> [usize; 2] {
    pair.map(|size| size as usize)
}
