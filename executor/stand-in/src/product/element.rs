//! Types of matrices, and how products of them are computed.

use crate::number::{Format, Rounding};

/// The type of a matrix's elements, as far as there are products of it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `CUDA_R_32F`.
    F32,
    /// `CUDA_R_64F`.
    F64,
    /// `CUDA_R_16F`.
    F16,
    /// `CUDA_R_16BF`.
    Bf16,
}

/// How a product is computed, with the type of its scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// `CUBLAS_COMPUTE_32F`, and the pedantic kind.
    F32,
    /// `CUBLAS_COMPUTE_32F_FAST_TF32`.
    FastTf32,
    /// `CUBLAS_COMPUTE_32F_FAST_16F`.
    FastF16,
    /// `CUBLAS_COMPUTE_32F_FAST_16BF`.
    FastBf16,
    /// `CUBLAS_COMPUTE_64F`, and the pedantic kind.
    F64,
}

impl Element {
    /// By the numbers of `cudaDataType_t`.
    pub fn of(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::F32),
            1 => Some(Self::F64),
            2 => Some(Self::F16),
            14 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Its format.
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

impl Precision {
    /// By the numbers of `cublasComputeType_t`.
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
    pub fn scale(self) -> Element {
        match self {
            Self::F64 => Element::F64,
            _ => Element::F32,
        }
    }

    /// Whether there are products of A, B, C and D of these types.
    pub(super) fn takes(self, [a, b, c, d]: [Element; 4]) -> bool {
        let fits = match self {
            Self::F32 => match a {
                Element::F32 => c == Element::F32,
                Element::F16 => [Element::F16, Element::F32].contains(&c),
                Element::Bf16 => [Element::Bf16, Element::F32].contains(&c),
                Element::F64 => false,
            },
            Self::FastTf32 | Self::FastF16 | Self::FastBf16 => {
                a == Element::F32 && c == Element::F32
            }
            Self::F64 => a == Element::F64 && c == Element::F64,
        };
        fits && a == b && c == d
    }

    /// What is taken of a number of A or B.
    pub(super) fn round_operand(self, value: f64) -> f64 {
        match self {
            Self::F32 | Self::F64 => value,
            Self::FastTf32 => Format::Tf32.round(value, Rounding::NearestAway),
            Self::FastF16 => Format::F16.round(value, Rounding::NearestEven),
            Self::FastBf16 => Format::Bf16.round(value, Rounding::NearestEven),
        }
    }

    /// The sum of products, in the order in which they come. GPUs take another order.
    pub(super) fn sum(self, pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
        if self == Self::F64 {
            return pairs.fold(0.0, |sum, (x, y)| x.mul_add(y, sum));
        }
        f64::from(pairs.fold(0_f32, |sum, (x, y)| (x as f32).mul_add(y as f32, sum)))
    }
}
