//! Element types and compute types of matrix products.

use crate::number::{Format, Rounding};

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

impl ComputeType {
    /// The type that a number of `cublasComputeType_t` stands for.
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
    pub fn scale(self) -> Format {
        match self {
            Self::F64 => Format::F64,
            _ => Format::F32,
        }
    }

    /// Returns whether products of A, B, C and D of these types are supported.
    pub(super) fn accepts(self, [a, b, c, d]: [Format; 4]) -> bool {
        let fits = match self {
            Self::F32 => match a {
                Format::F32 => c == Format::F32,
                Format::F16 | Format::Bf16 => [a, Format::F32].contains(&c),
                Format::Tf32 | Format::F64 => false,
            },
            Self::FastTf32 | Self::FastF16 | Self::FastBf16 => a == Format::F32 && c == Format::F32,
            Self::F64 => a == Format::F64 && c == Format::F64,
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

/// The format that a number of `cudaDataType_t` stands for, if products support it.
pub fn cuda_format(number: i32) -> Option<Format> {
    match number {
        0 => Some(Format::F32),
        1 => Some(Format::F64),
        2 => Some(Format::F16),
        14 => Some(Format::Bf16),
        _ => None,
    }
}
