//! Element types and compute types of matrix products.

use crate::number::{Format, Rounding};

/// Element type of a matrix, as far as products support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaDataType {
    /// `CUDA_R_32F`.
    F32,
    /// `CUDA_R_64F`.
    F64,
    /// `CUDA_R_16F`.
    F16,
    /// `CUDA_R_16BF`.
    Bf16,
}

/// Compute type of a product, which gives the type of its scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeType {
    /// `CUBLAS_COMPUTE_32F` and its pedantic variant.
    F32,
    /// `CUBLAS_COMPUTE_32F_FAST_TF32`.
    FastTf32,
    /// `CUBLAS_COMPUTE_32F_FAST_16F`.
    FastF16,
    /// `CUBLAS_COMPUTE_32F_FAST_16BF`.
    FastBf16,
    /// `CUBLAS_COMPUTE_64F` and its pedantic variant.
    F64,
}

impl CudaDataType {
    /// The type of a number of `cudaDataType_t`.
    pub fn of(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::F32),
            1 => Some(Self::F64),
            2 => Some(Self::F16),
            14 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// The type's floating-point format.
    pub fn format(self) -> Format {
        match self {
            Self::F32 => Format::F32,
            Self::F64 => Format::F64,
            Self::F16 => Format::F16,
            Self::Bf16 => Format::Bf16,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        self.format().bytes()
    }
}

impl ComputeType {
    /// The type of a number of `cublasComputeType_t`.
    pub fn of(number: i32) -> Option<Self> {
        match number {
            68 | 69 => Some(Self::F32),
            74 => Some(Self::FastF16),
            75 => Some(Self::FastBf16),
            77 => Some(Self::FastTf32),
            70 | 71 => Some(Self::F64),
            _ => None,
        }
    }

    /// The type of `alpha` and `beta`.
    pub fn scale(self) -> CudaDataType {
        match self {
            Self::F64 => CudaDataType::F64,
            _ => CudaDataType::F32,
        }
    }

    /// Returns whether products of A, B, C and D of these types are supported.
    pub(super) fn accepts(self, [a, b, c, d]: [CudaDataType; 4]) -> bool {
        let fits = match self {
            Self::F32 => match a {
                CudaDataType::F32 => c == CudaDataType::F32,
                CudaDataType::F16 => [CudaDataType::F16, CudaDataType::F32].contains(&c),
                CudaDataType::Bf16 => [CudaDataType::Bf16, CudaDataType::F32].contains(&c),
                CudaDataType::F64 => false,
            },
            Self::FastTf32 | Self::FastF16 | Self::FastBf16 => {
                a == CudaDataType::F32 && c == CudaDataType::F32
            }
            Self::F64 => a == CudaDataType::F64 && c == CudaDataType::F64,
        };
        fits && a == b && c == d
    }

    /// An element of A or B, rounded to the type of the inputs.
    pub(super) fn round_operand(self, value: f64) -> f64 {
        match self {
            Self::F32 | Self::F64 => value,
            Self::FastTf32 => Format::Tf32.round(value, Rounding::NearestAway),
            Self::FastF16 => Format::F16.round(value, Rounding::NearestEven),
            Self::FastBf16 => Format::Bf16.round(value, Rounding::NearestEven),
        }
    }

    /// The sum of products, in their order. GPUs sum in another order.
    pub(super) fn sum(self, pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
        if self == Self::F64 {
            return pairs.fold(0.0, |sum, (x, y)| x.mul_add(y, sum));
        }
        f64::from(pairs.fold(0_f32, |sum, (x, y)| (x as f32).mul_add(y as f32, sum)))
    }
}
