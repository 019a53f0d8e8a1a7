//! Tensors whose number of dimensions is known at run time.
//!
//! A program is made from a model that is read at run time, so the number of dimensions of its tensors
//! cannot be part of their type, as it is in burn's `Tensor`. [`Array`] is a thin coat over the backend's own
//! tensor, which burn's operations work on all the same. Its element type is known at run time too.

use std::ops::{Add, Div, Mul, Neg, Range, Sub};

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, FloatDType, IntDType, Shape, Slice, TensorData, TensorMetadata};

/// What the elements of an [`Array`] are.
pub type Element = FloatDType;

/// What follows from an element type.
pub trait ElementExt {
    /// The type that statistics of others are taken in: fp64 for itself, fp32 for all others.
    #[must_use]
    fn widened(self) -> Self;

    /// How many bytes one takes.
    fn num_bytes(self) -> u64;
}

impl ElementExt for Element {
    fn widened(self) -> Self {
        if self == Self::F64 { Self::F64 } else { Self::F32 }
    }

    fn num_bytes(self) -> u64 {
        DType::from(self).size() as u64
    }
}

/// A tensor of floating-point numbers on a device. Cloning shares its memory.
#[derive(Clone, Debug)]
pub struct Array<B: Backend>(FloatTensor<B>);

/// A tensor of integers on a device: rows to take, classes to find.
#[derive(Clone, Debug)]
pub struct Indices<B: Backend>(IntTensor<B>);

impl<B: Backend> Indices<B> {
    /// Indices of shape `shape` from values in row-major order.
    pub fn new(values: &[u32], shape: &[usize], device: &B::Device) -> Self {
        let values: Vec<i64> = values.iter().map(|value| i64::from(*value)).collect();
        let data = TensorData::new(values, shape).convert_dtype(B::int_dtype().into());
        Self(B::int_from_data(data, device))
    }

    /// Sizes of its dimensions, outermost first.
    pub fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }

    /// The backend's tensor.
    pub fn primitive(self) -> IntTensor<B> {
        self.0
    }
}

/// The element type of integers that a backend works with.
trait IntElement: Backend {
    fn int_dtype() -> IntDType;
}

impl<B: Backend> IntElement for B {
    fn int_dtype() -> IntDType {
        <B::IntElem as burn::tensor::Element>::dtype().into()
    }
}

impl<B: Backend> Array<B> {
    /// The array that a backend's tensor is.
    pub fn from_primitive(primitive: FloatTensor<B>) -> Self {
        Self(primitive)
    }

    /// The backend's tensor.
    pub fn primitive(self) -> FloatTensor<B> {
        self.0
    }

    /// An array of shape `shape` from values in row-major order, rounded to `element`.
    pub fn from_f64(
        values: Vec<f64>,
        shape: &[usize],
        element: Element,
        device: &B::Device,
    ) -> Self {
        Self::from_data(TensorData::new(values, shape).convert_dtype(element.into()), device)
    }

    /// An array from what a device or file holds.
    pub fn from_data(data: TensorData, device: &B::Device) -> Self {
        Self(B::float_from_data(data, device))
    }

    /// Zeros.
    pub fn zeros(shape: &[usize], element: Element, device: &B::Device) -> Self {
        Self(B::float_zeros(Shape::from(shape), device, element))
    }

    /// Ones.
    pub fn ones(shape: &[usize], element: Element, device: &B::Device) -> Self {
        Self(B::float_ones(Shape::from(shape), device, element))
    }

    /// Sizes of its dimensions, outermost first.
    pub fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }

    /// The size of dimension `dim`.
    pub fn size(&self, dim: usize) -> usize {
        self.0.shape()[dim]
    }

    /// How many dimensions it has.
    pub fn rank(&self) -> usize {
        self.0.shape().num_dims()
    }

    /// How many elements it has.
    pub fn num_elements(&self) -> usize {
        self.0.shape().num_elements()
    }

    /// What its elements are.
    pub fn element(&self) -> Element {
        self.0.dtype().into()
    }

    /// How many bytes its elements take.
    pub fn num_bytes(&self) -> u64 {
        (self.num_elements() * self.0.dtype().size()) as u64
    }

    /// Where it lies.
    pub fn device(&self) -> B::Device {
        B::float_device(&self.0)
    }

    /// The same on another device.
    pub fn to_device(self, device: &B::Device) -> Self {
        Self(B::float_to_device(self.0, device))
    }

    /// What it holds, brought to the host. Waits for the device.
    pub fn into_data(self) -> TensorData {
        burn::tensor::read_sync(B::float_into_data(self.0))
            .expect("a tensor that was computed can be read")
    }

    /// Its elements in row-major order, brought to the host. Waits for the device.
    pub fn to_f64(&self) -> Vec<f64> {
        let data = self.clone().into_data().convert_dtype(DType::F64);
        data.to_vec().expect("the data was converted to f64")
    }

    /// Its only element, brought to the host. Waits for the device.
    pub fn item(&self) -> f64 {
        let values = self.to_f64();
        assert_eq!(values.len(), 1, "an item is the only element of its array");
        values[0]
    }

    /// The same with other elements, rounded to nearest.
    pub fn cast(self, element: Element) -> Self {
        if self.element() == element { self } else { Self(B::float_cast(self.0, element)) }
    }

    /// The same in an element type that statistics and functions that are not linear are computed in:
    /// fp32, or fp64 where it is fp64.
    pub fn widened(self) -> Self {
        let element = self.element().widened();
        self.cast(element)
    }

    /// The same elements in row-major order in another shape.
    pub fn reshape(self, shape: &[usize]) -> Self {
        Self(B::float_reshape(self.0, Shape::from(shape)))
    }

    /// All elements in one dimension.
    pub fn flatten(self) -> Self {
        let count = self.num_elements();
        self.reshape(&[count])
    }

    /// As a matrix of rows: the last `trailing` dimensions as one, all others as rows.
    pub fn rows(self, trailing: usize) -> Self {
        let shape = self.shape();
        let width = shape[shape.len() - trailing..].iter().product();
        let rows = shape[..shape.len() - trailing].iter().product();
        self.reshape(&[rows, width])
    }

    /// The last two dimensions exchanged.
    pub fn transpose(self) -> Self {
        Self(B::float_transpose(self.0))
    }

    /// Two dimensions exchanged.
    pub fn swap_dims(self, a: usize, b: usize) -> Self {
        Self(B::float_swap_dims(self.0, a, b))
    }

    /// The dimensions in another order.
    pub fn permute(self, axes: &[usize]) -> Self {
        Self(B::float_permute(self.0, axes))
    }

    /// The part of dimension `dim` from `range.start` to `range.end`.
    pub fn narrow(&self, dim: usize, range: Range<usize>) -> Self {
        Self(B::float_slice(self.0.clone(), &slices(&self.shape(), dim, &range)))
    }

    /// Dimension `dim` cut into parts of these sizes.
    pub fn split(&self, dim: usize, sizes: &[usize]) -> Vec<Self> {
        let mut start = 0;
        let part = |size: &usize| {
            start += size;
            self.narrow(dim, start - size..start)
        };
        sizes.iter().map(part).collect()
    }

    /// The same with `part` added to what begins at `start` along dimension `dim`.
    pub fn add_at(self, dim: usize, start: usize, part: Self) -> Self {
        let shape = self.shape();
        let range = start..start + part.size(dim);
        if range == (0..shape[dim]) {
            return self + part;
        }
        let sum = self.narrow(dim, range.clone()) + part;
        Self(B::float_slice_assign(self.0, &slices(&shape, dim, &range), sum.0))
    }

    /// Arrays joined along dimension `dim`.
    pub fn concat(arrays: Vec<Self>, dim: usize) -> Self {
        if arrays.len() == 1 {
            return arrays.into_iter().next().expect("there is one");
        }
        Self(B::float_cat(arrays.into_iter().map(|array| array.0).collect(), dim))
    }

    /// One dimension of size 1 repeated, so that the shape becomes `shape`.
    pub fn expand(self, shape: &[usize]) -> Self {
        Self(B::float_expand(self.0, Shape::from(shape)))
    }

    /// The rows of dimension `dim` that `indices` name, in their order.
    pub fn select(&self, dim: usize, indices: &Indices<B>) -> Self {
        Self(B::float_select(self.0.clone(), dim, indices.0.clone()))
    }

    /// Row `indices[i]` of dimension `dim` plus row `i` of `rows`, for each `i`; equal indices add up.
    pub fn select_add(self, dim: usize, indices: &Indices<B>, rows: Self) -> Self {
        Self(B::float_select_add(self.0, dim, indices.0.clone(), rows.0))
    }

    /// For each place of `indices`, the element of dimension `dim` that it names.
    pub fn gather(&self, dim: usize, indices: &Indices<B>) -> Self {
        Self(B::float_gather(dim, self.0.clone(), indices.0.clone()))
    }

    /// For each place of `indices`, the element of dimension `dim` that it names plus that place of
    /// `values`; the inverse of [`Self::gather`].
    pub fn scatter_add(self, dim: usize, indices: &Indices<B>, values: Self) -> Self {
        Self(B::float_scatter_add(dim, self.0, indices.0.clone(), values.0))
    }

    /// Products of matrices: `[.., m, k]` by `[.., k, n]`; other dimensions broadcast.
    pub fn matmul(self, other: Self) -> Self {
        Self(B::float_matmul(self.0, other.0))
    }

    /// The sum along dimension `dim`, which is left with size 1.
    pub fn sum_dim(self, dim: usize) -> Self {
        Self(B::float_sum_dim(self.0, dim))
    }

    /// The mean along dimension `dim`, which is left with size 1.
    pub fn mean_dim(self, dim: usize) -> Self {
        Self(B::float_mean_dim(self.0, dim))
    }

    /// The largest along dimension `dim`, which is left with size 1.
    pub fn max_dim(self, dim: usize) -> Self {
        Self(B::float_max_dim(self.0, dim))
    }

    /// The sum of all elements, in one dimension of size 1.
    pub fn sum(self) -> Self {
        Self(B::float_sum(self.0))
    }

    /// The elementwise larger of two arrays.
    pub fn maximum(self, other: Self) -> Self {
        let lower = B::float_lower(self.0.clone(), other.0.clone(), bool_dtype::<B>());
        Self(B::float_mask_where(self.0, lower, other.0))
    }

    /// The elementwise smaller of two arrays.
    pub fn minimum(self, other: Self) -> Self {
        let greater = B::float_greater(self.0.clone(), other.0.clone(), bool_dtype::<B>());
        Self(B::float_mask_where(self.0, greater, other.0))
    }

    /// The elementwise larger of the array and a number.
    pub fn at_least(self, floor: f64) -> Self {
        Self(B::float_clamp_min(self.0, floor.into()))
    }

    /// `x` where `x > 0` in `self`, zero elsewhere: the mask of `self` applied to `other`.
    pub fn where_positive(self, other: Self) -> Self {
        let hidden = B::float_lower_equal_elem(self.0, 0.0.into(), bool_dtype::<B>());
        Self(B::float_mask_fill(other.0, hidden, 0.0.into()))
    }

    /// Each element times a number.
    pub fn scale(self, factor: f64) -> Self {
        Self(B::float_mul_scalar(self.0, factor.into()))
    }

    /// Each element plus a number.
    pub fn shift(self, summand: f64) -> Self {
        Self(B::float_add_scalar(self.0, summand.into()))
    }

    /// `e^x`.
    pub fn exp(self) -> Self {
        Self(B::float_exp(self.0))
    }

    /// Natural logarithm.
    pub fn log(self) -> Self {
        Self(B::float_log(self.0))
    }

    /// Square root.
    pub fn sqrt(self) -> Self {
        Self(B::float_sqrt(self.0))
    }

    /// `1 / x`.
    pub fn recip(self) -> Self {
        Self(B::float_recip(self.0))
    }

    /// Hyperbolic tangent.
    pub fn tanh(self) -> Self {
        Self(B::float_tanh(self.0))
    }

    /// Error function.
    pub fn erf(self) -> Self {
        Self(B::float_erf(self.0))
    }

    /// `max(x, 0)`.
    pub fn relu(self) -> Self {
        Self(B::relu(self.0))
    }

    /// Logistic function.
    pub fn sigmoid(self) -> Self {
        Self(B::sigmoid(self.0))
    }

    /// `x^2`.
    pub fn square(self) -> Self {
        let other = self.clone();
        self * other
    }

    /// Whether all elements are finite numbers. Waits for the device.
    pub fn is_finite(&self) -> bool {
        // Infinities and what is no number survive in the sum of `x - x`, which is zero otherwise.
        let difference = self.clone() - self.clone();
        difference.sum().item() == 0.0
    }
}

/// All of a tensor but for dimension `dim`, of which `range`.
fn slices(shape: &[usize], dim: usize, range: &Range<usize>) -> Vec<Slice> {
    let of = |(other, size): (usize, &usize)| if other == dim { range.clone() } else { 0..*size };
    shape.iter().enumerate().map(of).map(Slice::from).collect()
}

fn bool_dtype<B: Backend>() -> burn::tensor::BoolDType {
    <B::BoolElem as burn::tensor::Element>::dtype().into()
}

impl<B: Backend> Add for Array<B> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(B::float_add(self.0, other.0))
    }
}

impl<B: Backend> Sub for Array<B> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(B::float_sub(self.0, other.0))
    }
}

impl<B: Backend> Mul for Array<B> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(B::float_mul(self.0, other.0))
    }
}

impl<B: Backend> Div for Array<B> {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        Self(B::float_div(self.0, other.0))
    }
}

impl<B: Backend> Neg for Array<B> {
    type Output = Self;

    fn neg(self) -> Self {
        Self(B::float_neg(self.0))
    }
}
