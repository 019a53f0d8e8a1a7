//! A causal convolution over the sequence of each feature by itself, with an activation.
//!
//! ```text
//! z[t] = sum over j < kernel of weight[j] x[t - kernel + 1 + j] + bias,   y = f(z)
//! ```
//!
//! with `x` zero before the first position. `x` is `[b, s, features]`, `weight` `[features, kernel]`, `bias`
//! `[features]`. For gradients, `z` is recomputed.

use super::Kernels;
use super::activation::Function;
use crate::array::Array;

/// A convolution's weights and its function, if it has one.
#[derive(Clone, Debug)]
pub struct ShortConvolution<B: Kernels> {
    /// `[features, kernel]`.
    pub weight: Array<B>,
    /// `[features]`.
    pub bias: Option<Array<B>>,
    /// The function of the output.
    pub function: Option<Function>,
}

impl<B: Kernels> ShortConvolution<B> {
    /// `y`, `[b, s, features]`.
    pub fn forward(&self, x: Array<B>) -> Array<B> {
        let element = x.element();
        let z = self.linear(x);
        match self.function {
            Some(function) => function.forward(z),
            None => z,
        }
        .cast(element)
    }

    /// The gradient of `x`.
    pub fn input_grad(&self, x: Array<B>, grad: Array<B>) -> Array<B> {
        let (element, length) = (x.element(), x.size(1));
        let grad = self.linear_grad(x, grad);
        let taps = (0..self.kernel()).map(|tap| {
            let delay = self.delay(tap, length);
            padded(&grad.narrow(1, delay..length), 0, delay) * self.tap(tap)
        });
        summed(taps).cast(element)
    }

    /// The gradients of weight and bias.
    pub fn weight_grad(&self, x: Array<B>, grad: Array<B>) -> [Array<B>; 2] {
        let (element, length) = (self.weight.element(), x.size(1));
        let grad = self.linear_grad(x.clone(), grad).rows(1);
        let x = x.widened();
        let column = |tap| {
            let products = grad.clone() * self.delayed(&x, tap, length).rows(1);
            products.sum_dim(0).transpose()
        };
        let columns = (0..self.kernel()).map(column).collect();
        let bias = grad.clone().sum_dim(0).flatten();
        [Array::concat(columns, 1).cast(element), bias.cast(element)]
    }

    fn kernel(&self) -> usize {
        self.weight.size(1)
    }

    /// Number of positions from the one that a tap reads to the one to which it adds; at most `length`.
    fn delay(&self, tap: usize, length: usize) -> usize {
        (self.kernel() - 1 - tap).min(length)
    }

    /// The factors of a tap, `[1, 1, features]`.
    fn tap(&self, tap: usize) -> Array<B> {
        let weight = self.weight.narrow(1, tap..tap + 1).widened();
        weight.reshape(&[1, 1, self.weight.size(0)])
    }

    /// `x` as a tap reads it.
    fn delayed(&self, x: &Array<B>, tap: usize, length: usize) -> Array<B> {
        let delay = self.delay(tap, length);
        padded(&x.narrow(1, 0..length - delay), delay, 0)
    }

    fn linear(&self, x: Array<B>) -> Array<B> {
        let (length, x) = (x.size(1), x.widened());
        let taps = (0..self.kernel()).map(|tap| self.delayed(&x, tap, length) * self.tap(tap));
        let z = summed(taps);
        match &self.bias {
            Some(bias) => z + bias.clone().widened().reshape(&[1, 1, bias.num_elements()]),
            None => z,
        }
    }

    /// The gradient before the function.
    fn linear_grad(&self, x: Array<B>, grad: Array<B>) -> Array<B> {
        let grad = grad.widened();
        let Some(function) = self.function else { return grad };
        let z = self.linear(x);
        let kept = if function.keeps_output() { function.forward(z) } else { z };
        function.input_grad(kept, grad)
    }
}

/// `x` with zeros before and after its positions.
fn padded<B: Kernels>(x: &Array<B>, before: usize, after: usize) -> Array<B> {
    let zeros = |length: usize| {
        let shape = [x.size(0), length, x.size(2)];
        (length > 0).then(|| Array::zeros(&shape, x.element(), &x.device()))
    };
    let parts = zeros(before).into_iter().chain([x.clone()]).chain(zeros(after));
    Array::concat(parts.collect(), 1)
}

fn summed<B: Kernels>(arrays: impl Iterator<Item = Array<B>>) -> Array<B> {
    arrays.reduce(|sum, array| sum + array).expect("a convolution has a tap")
}
