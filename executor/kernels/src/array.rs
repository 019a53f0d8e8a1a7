//! Tensors whose number of dimensions is known at run time.
//!
//! The model is read at run time, so the number of dimensions of the program's tensors cannot be part of their type, as
//! it is in burn's `Tensor`. [`Array`] is a thin wrapper of the backend's own tensor, so burn's operations still work
//! on it. Its element type is known at run time too.

mod arithmetic;

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, FloatDType, IntDType, Shape, Slice, TensorData, TensorMetadata};

use crate::failure::unless_failed;

/// Floating-point type of the elements of an [`Array`].
pub type Element = FloatDType;

/// Properties of an element type.
pub trait ElementExt {
    /// The element type of statistics: fp64 for fp64, fp32 for all others.
    #[must_use]
    fn widened(self) -> Self;

    /// Bytes of one element.
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

/// A tensor on a device. Cloning shares its memory.
///
/// Elements are floating-point numbers, or bytes that encode something else, such as quantised weights. Bytes can be
/// moved, cut, joined and converted to numbers by [`Self::bytes_as`]; arithmetic with them is a bug, and panics.
#[derive(Clone, Debug)]
pub struct Array<B: Backend>(Primitive<B>);

#[derive(Clone, Debug)]
enum Primitive<B: Backend> {
    Numbers(FloatTensor<B>),
    Bytes(IntTensor<B>),
}

/// Integer type of arrays of bytes.
const BYTE: IntDType = IntDType::U8;

/// Returns whether a shape has no elements. No kernel is launched for such a shape: CUDA refuses a launch with no
/// threads.
fn is_empty(shape: &[usize]) -> bool {
    shape.contains(&0)
}

/// A tensor of integers on a device, such as row indices or target classes.
#[derive(Clone, Debug)]
pub struct Indices<B: Backend>(IntTensor<B>);

impl<B: Backend> Indices<B> {
    /// Indices of shape `shape` from values in row-major order.
    pub fn new(values: &[u32], shape: &[usize], device: &B::Device) -> Self {
        let values: Vec<i64> = values.iter().map(|value| i64::from(*value)).collect();
        let data = TensorData::new(values, shape).convert_dtype(B::int_dtype().into());
        Self(B::int_from_data(data, device))
    }

    /// Converts an array of whole numbers to indices.
    pub fn rounded(array: Array<B>) -> Self {
        Self(B::float_into_int(array.primitive(), B::int_dtype()))
    }

    /// Wraps a tensor of the backend.
    pub fn from_primitive(primitive: IntTensor<B>) -> Self {
        Self(primitive)
    }

    /// Sizes of its dimensions, outermost first.
    pub fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }

    /// The device that holds the tensor.
    pub fn device(&self) -> B::Device {
        B::int_device(&self.0)
    }

    /// All indices in one dimension.
    pub fn flatten(self) -> Self {
        let count = self.shape().iter().product::<usize>();
        Self(B::int_reshape(self.0, Shape::from([count])))
    }

    /// The indices converted to floating-point numbers of an element type.
    pub fn numbers(&self, element: Element) -> Array<B> {
        Array::from_primitive(B::int_into_float(self.0.clone(), element))
    }

    /// All indices in row-major order, copied to the host. Waits for the device.
    pub fn to_vec(&self) -> Vec<u32> {
        if is_empty(&self.shape()) {
            return Vec::new();
        }
        let data = burn::tensor::read_sync(B::int_into_data(self.0.clone()));
        let data = data.expect("a tensor that was computed can be read").convert_dtype(DType::U32);
        data.to_vec().expect("the data was converted to u32")
    }

    /// The backend's tensor.
    pub fn primitive(self) -> IntTensor<B> {
        self.0
    }
}

/// The integer element type of a backend.
trait IntElement: Backend {
    fn int_dtype() -> IntDType;
}

impl<B: Backend> IntElement for B {
    fn int_dtype() -> IntDType {
        <B::IntElem as burn::tensor::Element>::dtype().into()
    }
}

impl<B: Backend> Array<B> {
    /// Wraps a tensor of the backend.
    pub fn from_primitive(primitive: FloatTensor<B>) -> Self {
        Self(Primitive::Numbers(primitive))
    }

    /// The backend's tensor.
    ///
    /// # Panics
    ///
    /// If it holds bytes.
    pub fn primitive(self) -> FloatTensor<B> {
        match self.0 {
            Primitive::Numbers(tensor) => tensor,
            Primitive::Bytes(_) => panic!("bytes are not calculated with"),
        }
    }

    /// Bytes of shape `shape`.
    pub fn from_bytes(bytes: Vec<u8>, shape: &[usize], device: &B::Device) -> Self {
        Self::from_data(TensorData::new(bytes, shape), device)
    }

    /// Converts bytes to the whole numbers from 0 to 255.
    ///
    /// # Panics
    ///
    /// If it holds no bytes.
    pub fn bytes_as(self, element: Element) -> Self {
        match self.0 {
            Primitive::Bytes(tensor) => Self::from_primitive(B::int_into_float(tensor, element)),
            Primitive::Numbers(_) => panic!("only bytes are made into numbers"),
        }
    }

    /// Returns whether the array holds bytes rather than numbers.
    pub fn is_bytes(&self) -> bool {
        matches!(self.0, Primitive::Bytes(_))
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

    /// An array from data of a device or a file.
    pub fn from_data(data: TensorData, device: &B::Device) -> Self {
        if is_empty(&data.shape) {
            Self::empty_of(&data.shape, data.dtype, device)
        } else if data.dtype == BYTE.into() {
            Self(Primitive::Bytes(B::int_from_data(data, device)))
        } else {
            Self::from_primitive(B::float_from_data(data, device))
        }
    }

    /// Zeros of any element type, bytes included.
    pub fn zeros_of(shape: &[usize], dtype: DType, device: &B::Device) -> Self {
        if is_empty(shape) {
            Self::empty_of(shape, dtype, device)
        } else if dtype == BYTE.into() {
            Self(Primitive::Bytes(B::int_zeros(Shape::from(shape), device, BYTE)))
        } else {
            Self::zeros(shape, dtype.into(), device)
        }
    }

    /// Zeros.
    pub fn zeros(shape: &[usize], element: Element, device: &B::Device) -> Self {
        if is_empty(shape) {
            return Self::empty_of(shape, element.into(), device);
        }
        Self::from_primitive(B::float_zeros(Shape::from(shape), device, element))
    }

    /// Ones.
    pub fn ones(shape: &[usize], element: Element, device: &B::Device) -> Self {
        if is_empty(shape) {
            return Self::empty_of(shape, element.into(), device);
        }
        Self::from_primitive(B::float_ones(Shape::from(shape), device, element))
    }

    /// Sizes of its dimensions, outermost first.
    pub fn shape(&self) -> Vec<usize> {
        self.read(|it| it.shape().to_vec(), |it| it.shape().to_vec())
    }

    /// The size of dimension `dim`.
    pub fn size(&self, dim: usize) -> usize {
        self.shape()[dim]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Returns whether the array has no elements. No kernel is launched for such an array: CUDA refuses a launch with
    /// no threads.
    pub fn is_empty(&self) -> bool {
        is_empty(&self.shape())
    }

    /// Element type, bytes included.
    pub fn dtype(&self) -> DType {
        self.read(TensorMetadata::dtype, TensorMetadata::dtype)
    }

    /// Element type of the numbers.
    ///
    /// # Panics
    ///
    /// If it holds bytes.
    pub fn element(&self) -> Element {
        self.dtype().into()
    }

    /// Size of all elements in bytes.
    pub fn num_bytes(&self) -> u64 {
        (self.num_elements() * self.dtype().size()) as u64
    }

    /// The device that holds the array.
    pub fn device(&self) -> B::Device {
        self.read(B::float_device, B::int_device)
    }

    /// The array on a device, copied from another one through the host. burn's own copy between GPUs lets its target be
    /// read, and its source be overwritten, before the copy has finished.
    pub fn to_device(self, device: &B::Device) -> Self {
        if self.device() == *device { self } else { Self::from_data(self.into_data(), device) }
    }

    /// An uninitialised array, with the arguments of [`Self::zeros_of`].
    pub fn empty_of(shape: &[usize], dtype: DType, device: &B::Device) -> Self {
        let shape = Shape::from(shape);
        if dtype == BYTE.into() {
            Self(Primitive::Bytes(B::int_empty(shape, device, BYTE)))
        } else {
            Self::from_primitive(B::float_empty(shape, device, dtype.into()))
        }
    }

    /// Applies a function to the backend's tensor: `numbers` or `bytes`, depending on what the array holds.
    pub fn read<T>(
        &self,
        numbers: impl FnOnce(&FloatTensor<B>) -> T,
        bytes: impl FnOnce(&IntTensor<B>) -> T,
    ) -> T {
        match &self.0 {
            Primitive::Numbers(tensor) => numbers(tensor),
            Primitive::Bytes(tensor) => bytes(tensor),
        }
    }

    /// Applies functions that only move elements: `numbers` or `bytes`, depending on what the array holds.
    pub fn moved(
        self,
        numbers: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
        bytes: impl FnOnce(IntTensor<B>) -> IntTensor<B>,
    ) -> Self {
        match self.0 {
            Primitive::Numbers(tensor) => Self(Primitive::Numbers(numbers(tensor))),
            Primitive::Bytes(tensor) => Self(Primitive::Bytes(bytes(tensor))),
        }
    }

    /// The elements with their type and shape, copied to the host. Waits for the device.
    pub fn into_data(self) -> TensorData {
        if self.is_empty() {
            return TensorData::from_bytes_vec(Vec::new(), self.shape(), self.dtype());
        }
        let data = match self.0 {
            Primitive::Numbers(tensor) => burn::tensor::read_sync(B::float_into_data(tensor)),
            Primitive::Bytes(tensor) => burn::tensor::read_sync(B::int_into_data(tensor)),
        };
        unless_failed(data)
    }

    /// Elements in row-major order, brought to the host. Waits for the device.
    pub fn to_f64(&self) -> Vec<f64> {
        let data = self.clone().into_data().convert_dtype(DType::F64);
        data.to_vec().expect("the data was converted to f64")
    }

    /// The only element, brought to the host. Waits for the device.
    pub fn item(&self) -> f64 {
        let values = self.to_f64();
        assert_eq!(values.len(), 1, "an item is the only element of its array");
        values[0]
    }

    /// The only element of each array, copied to the host. Waits for the device once.
    pub fn items(arrays: Vec<Self>) -> Vec<f64> {
        if arrays.is_empty() {
            return Vec::new();
        }
        let each = arrays.into_iter().map(|array| array.widened().flatten()).collect();
        Self::concat(each, 0).to_f64()
    }

    /// The array converted to another element type, rounded to nearest.
    pub fn cast(self, element: Element) -> Self {
        if self.element() == element {
            self
        } else if self.is_empty() {
            Self::empty_of(&self.shape(), element.into(), &self.device())
        } else {
            Self::from_primitive(B::float_cast(self.primitive(), element))
        }
    }

    /// The array converted to the element type of statistics and of functions that are not linear: fp64 stays, all
    /// others become fp32.
    pub fn widened(self) -> Self {
        let element = self.element().widened();
        self.cast(element)
    }

    /// The elements in row-major order, in another shape.
    pub fn reshape(self, shape: &[usize]) -> Self {
        // burn 0.21 (`split_strides`) changes the order of elements where a dimension of a non-contiguous array is
        // split and a dimension of size 1 lies behind or between. Such arrays are flattened first.
        let own = self.shape();
        if shape.len() > own.len() && own.iter().skip(1).any(|size| *size == 1) {
            let whole = Shape::from([own.iter().product::<usize>()]);
            let flat = self.moved(
                |it| B::float_reshape(it, whole.clone()),
                |it| B::int_reshape(it, whole.clone()),
            );
            return flat.named(shape);
        }
        self.named(shape)
    }

    /// burn's reshape of the elements to another shape.
    fn named(self, shape: &[usize]) -> Self {
        let shape = Shape::from(shape);
        self.moved(|it| B::float_reshape(it, shape.clone()), |it| B::int_reshape(it, shape.clone()))
    }

    /// All elements in one dimension.
    pub fn flatten(self) -> Self {
        let count = self.num_elements();
        self.reshape(&[count])
    }

    /// The array as a matrix: the last `trailing` dimensions are joined to columns, all others to rows.
    pub fn rows(self, trailing: usize) -> Self {
        let shape = self.shape();
        let width = shape[shape.len() - trailing..].iter().product();
        let rows = shape[..shape.len() - trailing].iter().product();
        self.reshape(&[rows, width])
    }

    /// The last two dimensions exchanged.
    pub fn transpose(self) -> Self {
        Self::from_primitive(B::float_transpose(self.primitive()))
    }

    /// Two dimensions exchanged.
    pub fn swap_dims(self, a: usize, b: usize) -> Self {
        Self::from_primitive(B::float_swap_dims(self.primitive(), a, b))
    }

    /// The dimensions in another order.
    pub fn permute(self, axes: &[usize]) -> Self {
        Self::from_primitive(B::float_permute(self.primitive(), axes))
    }

    /// The part of dimension `dim` from `range.start` to `range.end`.
    pub fn narrow(&self, dim: usize, range: Range<usize>) -> Self {
        let mut shape = self.shape();
        let slices = slices(&shape, dim, &range);
        shape[dim] = range.len();
        if is_empty(&shape) {
            return Self::empty_of(&shape, self.dtype(), &self.device());
        }
        self.clone().moved(|it| B::float_slice(it, &slices), |it| B::int_slice(it, &slices))
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

    /// The array with `part` added to dimension `dim` from `start` on.
    pub fn add_at(self, dim: usize, start: usize, part: Self) -> Self {
        let shape = self.shape();
        let range = start..start + part.size(dim);
        if range == (0..shape[dim]) {
            return self + part;
        }
        if part.is_empty() {
            return self;
        }
        let sum = self.narrow(dim, range.clone()) + part;
        Self::from_primitive(B::float_slice_assign(
            self.primitive(),
            &slices(&shape, dim, &range),
            sum.primitive(),
        ))
    }

    /// The flat array with its elements from `start` on replaced by those of `part`.
    pub fn with(self, start: usize, part: Self) -> Self {
        if part.is_empty() {
            return self;
        }
        let range = slices(&self.shape(), 0, &(start..start + part.num_elements()));
        let part = part.flatten().primitive();
        Self::from_primitive(B::float_slice_assign(self.primitive(), &range, part))
    }

    /// Arrays joined along dimension `dim`.
    pub fn concat(mut arrays: Vec<Self>, dim: usize) -> Self {
        if arrays.iter().all(Self::is_empty) {
            let mut shape = arrays[0].shape();
            shape[dim] = arrays.iter().map(|array| array.size(dim)).sum();
            return Self::empty_of(&shape, arrays[0].dtype(), &arrays[0].device());
        }
        arrays.retain(|array| !array.is_empty());
        if arrays.len() == 1 {
            return arrays.into_iter().next().expect("there is one");
        }
        if arrays.iter().any(Self::is_bytes) {
            let bytes = |array: Self| match array.0 {
                Primitive::Bytes(tensor) => tensor,
                Primitive::Numbers(_) => panic!("bytes are joined with bytes alone"),
            };
            return Self(Primitive::Bytes(B::int_cat(
                arrays.into_iter().map(bytes).collect(),
                dim,
            )));
        }
        let numbers = arrays.into_iter().map(Self::primitive).collect();
        Self::from_primitive(B::float_cat(numbers, dim))
    }

    /// One dimension of size 1 repeated, so that the shape becomes `shape`.
    pub fn expand(self, shape: &[usize]) -> Self {
        Self::from_primitive(B::float_expand(self.primitive(), Shape::from(shape)))
    }

    /// The rows of dimension `dim` that `indices` name, in their order.
    pub fn select(&self, dim: usize, indices: &Indices<B>) -> Self {
        let mut shape = self.shape();
        shape[dim] = indices.shape().iter().product();
        if is_empty(&shape) {
            return Self::empty_of(&shape, self.dtype(), &self.device());
        }
        Self::from_primitive(B::float_select(self.clone().primitive(), dim, indices.0.clone()))
    }

    /// Adds row `i` of `rows` to row `indices[i]` of dimension `dim`, for each `i`. Rows with equal indices add up.
    pub fn select_add(self, dim: usize, indices: &Indices<B>, rows: Self) -> Self {
        if rows.is_empty() {
            return self;
        }
        Self::from_primitive(B::float_select_add(
            self.primitive(),
            dim,
            indices.0.clone(),
            rows.primitive(),
        ))
    }

    /// For each position of `indices`, the element of dimension `dim` at that index.
    pub fn gather(&self, dim: usize, indices: &Indices<B>) -> Self {
        if is_empty(&indices.shape()) {
            return Self::empty_of(&indices.shape(), self.dtype(), &self.device());
        }
        Self::from_primitive(B::float_gather(dim, self.clone().primitive(), indices.0.clone()))
    }

    /// Adds, for each position of `indices`, that position of `values` to the element of dimension `dim` at that index;
    /// the adjoint of [`Self::gather`].
    pub fn scatter_add(self, dim: usize, indices: &Indices<B>, values: Self) -> Self {
        if values.is_empty() {
            return self;
        }
        Self::from_primitive(B::float_scatter_add(
            dim,
            self.primitive(),
            indices.0.clone(),
            values.primitive(),
        ))
    }
}

/// Slices of a tensor: `range` of dimension `dim`, and all of the other dimensions.
fn slices(shape: &[usize], dim: usize, range: &Range<usize>) -> Vec<Slice> {
    let of = |(other, size): (usize, &usize)| if other == dim { range.clone() } else { 0..*size };
    shape.iter().enumerate().map(of).map(Slice::from).collect()
}
