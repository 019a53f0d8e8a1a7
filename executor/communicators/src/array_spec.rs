//! Specs of arrays, by which a receiver allocates memory.

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use serde::{Deserialize, Serialize};

/// Element type and shape of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// Type of its elements.
    pub element: DType,
    /// Sizes of its dimensions.
    pub shape: Vec<usize>,
}

impl ArraySpec {
    /// The spec of an array.
    pub fn of<B: Backend>(array: &Array<B>) -> Self {
        Self { element: array.dtype(), shape: array.shape() }
    }

    /// The spec of an array with another size along a dimension.
    pub fn resized(&self, dim: usize, size: usize) -> Self {
        let mut shape = self.shape.clone();
        shape[dim] = size;
        Self { element: self.element, shape }
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of all elements.
    pub fn num_bytes(&self) -> u64 {
        (self.num_elements() * self.element.size()) as u64
    }
}
