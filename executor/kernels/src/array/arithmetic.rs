//! Arithmetic of arrays. No kernel is launched for arrays without elements: CUDA refuses a launch with no threads.

use std::ops::{Add, Div, Mul, Neg, Sub};

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::Array;

impl<B: Backend> Array<B> {
    /// Products of matrices: `[.., m, k]` by `[.., k, n]`; other dimensions broadcast.
    pub fn matmul(self, other: Self) -> Self {
        if self.is_empty() || other.is_empty() {
            let mut shape = self.shape();
            for (size, other) in shape.iter_mut().zip(other.shape()) {
                *size = if *size == 1 { other } else { *size };
            }
            let rank = shape.len();
            shape[rank - 2] = self.size(rank - 2);
            shape[rank - 1] = other.size(rank - 1);
            return Self::zeros(&shape, self.element(), &self.device());
        }
        Self::from_primitive(B::float_matmul(self.primitive(), other.primitive()))
    }

    /// The sum along dimension `dim`, which is left with size 1.
    pub fn sum_dim(self, dim: usize) -> Self {
        self.reduced(dim, |it| B::float_sum_dim(it, dim))
    }

    /// The mean along dimension `dim`, which is left with size 1.
    pub fn mean_dim(self, dim: usize) -> Self {
        self.reduced(dim, |it| B::float_mean_dim(it, dim))
    }

    /// The largest element along dimension `dim`, which is left with size 1.
    pub fn max_dim(self, dim: usize) -> Self {
        Self::from_primitive(B::float_max_dim(self.primitive(), dim))
    }

    /// The sum of all elements, in one dimension of size 1.
    pub fn sum(self) -> Self {
        if self.is_empty() {
            return Self::zeros(&[1], self.element(), &self.device());
        }
        Self::from_primitive(B::float_sum(self.primitive()))
    }

    /// The elementwise larger of two arrays.
    pub fn maximum(self, other: Self) -> Self {
        self.combined(other, |one, other| {
            let lower = B::float_lower(one.clone(), other.clone(), bool_dtype::<B>());
            B::float_mask_where(one, lower, other)
        })
    }

    /// The elementwise smaller of two arrays.
    pub fn minimum(self, other: Self) -> Self {
        self.combined(other, |one, other| {
            let greater = B::float_greater(one.clone(), other.clone(), bool_dtype::<B>());
            B::float_mask_where(one, greater, other)
        })
    }

    /// The elementwise larger of the array and a number.
    pub fn at_least(self, floor: f64) -> Self {
        self.each(|it| B::float_clamp_min(it, floor.into()))
    }

    /// `x` where `x > 0` in `self`, zero elsewhere: the mask of `self` applied to `other`.
    pub fn where_positive(self, other: Self) -> Self {
        self.combined(other, |one, other| {
            let hidden = B::float_lower_equal_elem(one, 0.0.into(), bool_dtype::<B>());
            B::float_mask_fill(other, hidden, 0.0.into())
        })
    }

    /// Each element times a number.
    pub fn scale(self, factor: f64) -> Self {
        self.each(|it| B::float_mul_scalar(it, factor.into()))
    }

    /// Each element plus a number.
    pub fn shift(self, summand: f64) -> Self {
        self.each(|it| B::float_add_scalar(it, summand.into()))
    }

    /// The largest whole number that is not above each element.
    pub fn floor(self) -> Self {
        self.each(B::float_floor)
    }

    /// `e^x`.
    pub fn exp(self) -> Self {
        self.each(B::float_exp)
    }

    /// Natural logarithm.
    pub fn log(self) -> Self {
        self.each(B::float_log)
    }

    /// Natural logarithm of `1 + x`, accurate where `x` is small.
    pub fn log_1p(self) -> Self {
        self.each(B::float_log1p)
    }

    /// Square root.
    pub fn sqrt(self) -> Self {
        self.each(B::float_sqrt)
    }

    /// `1 / x`.
    pub fn recip(self) -> Self {
        self.each(B::float_recip)
    }

    /// Hyperbolic tangent.
    pub fn tanh(self) -> Self {
        self.each(B::float_tanh)
    }

    /// Error function.
    pub fn erf(self) -> Self {
        self.each(B::float_erf)
    }

    /// `max(x, 0)`.
    pub fn relu(self) -> Self {
        self.each(B::relu)
    }

    /// Logistic function.
    pub fn sigmoid(self) -> Self {
        self.each(B::sigmoid)
    }

    /// `x^2`.
    pub fn square(self) -> Self {
        let other = self.clone();
        self * other
    }

    /// Applies a function to each element.
    fn each(self, of_each: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>) -> Self {
        if self.is_empty() { self } else { Self::from_primitive(of_each(self.primitive())) }
    }

    /// Applies a function to pairs of elements of two arrays, of which one may be broadcast.
    fn combined(
        self,
        other: Self,
        of_both: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
    ) -> Self {
        if self.is_empty() || other.is_empty() {
            let sizes = self.shape().into_iter().zip(other.shape());
            let shape: Vec<usize> = sizes.map(|(a, b)| if a == 1 { b } else { a }).collect();
            return Self::empty_of(&shape, self.dtype(), &self.device());
        }
        Self::from_primitive(of_both(self.primitive(), other.primitive()))
    }

    /// Reduces a dimension by a function, and leaves it with size 1. The result is zeros where there are no elements.
    fn reduced(self, dim: usize, of_dim: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>) -> Self {
        if self.is_empty() {
            let mut shape = self.shape();
            shape[dim] = 1;
            return Self::zeros(&shape, self.element(), &self.device());
        }
        Self::from_primitive(of_dim(self.primitive()))
    }

    /// Returns whether all elements are finite numbers. Waits for the device.
    pub fn is_finite(&self) -> bool {
        // Infinities and NaN survive in the sum of `x - x`, which is zero otherwise.
        let difference = self.clone() - self.clone();
        difference.sum().item() == 0.0
    }
}

fn bool_dtype<B: Backend>() -> burn::tensor::BoolDType {
    <B::BoolElem as burn::tensor::Element>::dtype().into()
}

/// Defines operators of pairs of elements, by their traits and burn's names for them.
macro_rules! operators {
    ($($trait:ident $name:ident $function:ident,)*) => {
        $(
            impl<B: Backend> $trait for Array<B> {
                type Output = Self;

                fn $name(self, other: Self) -> Self {
                    self.combined(other, B::$function)
                }
            }
        )*
    };
}

operators! {
    Add add float_add,
    Sub sub float_sub,
    Mul mul float_mul,
    Div div float_div,
}

impl<B: Backend> Neg for Array<B> {
    type Output = Self;

    fn neg(self) -> Self {
        self.each(B::float_neg)
    }
}
