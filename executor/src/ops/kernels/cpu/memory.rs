//! The memory of arrays on the CPU.

use burn::tensor::TensorData;
use burn_flex::{Flex, FlexTensor};

use crate::array::{Array, Element};

/// Elements of an array in fp32 that are read, in row-major order.
pub(super) struct Read(FlexTensor);

impl Read {
    pub(super) fn new(array: &Array<Flex>) -> Self {
        Self(array.clone().primitive().to_contiguous())
    }

    pub(super) fn slice(&self) -> &[f32] {
        self.0.as_slice().expect("the array is contiguous and in fp32")
    }
}

/// Elements of an array in fp32 that are changed, in row-major order: its own memory if nobody else holds
/// it, otherwise a copy.
pub(super) fn owned(array: Array<Flex>) -> Vec<f32> {
    array.into_data().into_vec().expect("the array is in fp32")
}

/// The array of these elements in row-major order.
pub(super) fn array(values: Vec<f32>, shape: &[usize]) -> Array<Flex> {
    Array::from_primitive(FlexTensor::from_data(TensorData::new(values, shape)))
}

/// Whether loops over fp32 may run on all of these.
pub(super) fn are_fp32<const N: usize>(arrays: [&Array<Flex>; N]) -> bool {
    arrays.iter().all(|array| array.element() == Element::F32)
}
