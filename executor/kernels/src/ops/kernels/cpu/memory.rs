//! The memory of arrays on the CPU.

use burn::tensor::TensorData;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::math::CHUNK;
use crate::array::Array;

/// Elements of an fp32 array for reading, in row-major order.
pub(super) struct Read(FlexTensor);

impl Read {
    pub(super) fn new(array: &Array<Flex>) -> Self {
        Self(contiguous(array.clone()).primitive().to_contiguous())
    }

    pub(super) fn slice(&self) -> &[f32] {
        self.0.as_slice().expect("the array is contiguous and in fp32")
    }
}

/// Elements of an fp32 array for writing, in row-major order: the array's memory if no other array shares it, otherwise
/// a copy.
pub(super) fn owned(array: Array<Flex>) -> Vec<f32> {
    let array = contiguous(array);
    let tensor = array.primitive();
    if tensor.is_unique() {
        return tensor.into_data().into_vec().expect("the array is in fp32");
    }
    let source = tensor.to_contiguous();
    let source = source.as_slice().expect("the array is contiguous and in fp32");
    let mut copy = vec![0.0; source.len()];
    let parts = copy.par_chunks_mut(CHUNK).zip(source.par_chunks(CHUNK));
    parts.for_each(|(copy, source)| copy.copy_from_slice(source));
    copy
}

/// The array in row-major order, copied run by run of consecutive elements.
pub(super) fn contiguous(x: Array<Flex>) -> Array<Flex> {
    let shape = x.shape();
    let tensor = x.primitive();
    let strides: Vec<usize> =
        tensor.layout().strides().iter().map(|stride| stride.unsigned_abs()).collect();
    let (outer, run) = runs(&shape, &strides);
    let is_reversed = tensor.layout().strides().iter().any(|stride| *stride < 0);
    if tensor.is_contiguous() || is_reversed || run <= 1 {
        return Array::from_primitive(tensor);
    }
    let source: &[f32] = tensor.storage();
    let start = tensor.layout().start_offset();
    let mut out = vec![0.0; shape.iter().product()];
    let step = (CHUNK / run).max(1);
    out.par_chunks_mut(step * run).enumerate().for_each(|(part, out)| {
        for (index, out) in out.chunks_exact_mut(run).enumerate() {
            let mut rest = part * step + index;
            let mut offset = start;
            for dim in (0..outer).rev() {
                offset += rest % shape[dim] * strides[dim];
                rest /= shape[dim];
            }
            out.copy_from_slice(&source[offset..offset + run]);
        }
    });
    array(out, &shape)
}

/// `x` with `part` added to dimension `dim` from `start` on.
pub(super) fn add_at(x: Array<Flex>, dim: usize, start: usize, part: &Array<Flex>) -> Array<Flex> {
    let shape = x.shape();
    let inner = shape[dim + 1..].iter().product::<usize>();
    let (row, length) = (shape[dim] * inner, part.size(dim) * inner);
    let part = Read::new(part);
    let mut out = owned(x);
    out.par_chunks_mut(row).zip(part.slice().par_chunks(length)).for_each(|(out, part)| {
        for (out, part) in out[start * inner..][..length].iter_mut().zip(part) {
            *out += part;
        }
    });
    array(out, &shape)
}

/// Number of outer dimensions to loop over, and number of consecutive elements in memory of the inner ones.
fn runs(shape: &[usize], strides: &[usize]) -> (usize, usize) {
    let mut run = 1;
    for dim in (0..shape.len()).rev() {
        if strides[dim] != run {
            return (dim + 1, run);
        }
        run *= shape[dim];
    }
    (0, run)
}

/// An array from elements in row-major order.
pub(super) fn array(values: Vec<f32>, shape: &[usize]) -> Array<Flex> {
    Array::from_primitive(FlexTensor::from_data(TensorData::new(values, shape)))
}
