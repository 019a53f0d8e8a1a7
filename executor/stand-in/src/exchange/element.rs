//! Element types and reductions of NCCL.

use crate::number::{Format, Rounding, word};

/// The element type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclDataType {
    /// An integer of this many bytes; true if it is signed.
    Integer(usize, bool),
    /// A floating-point number.
    Float(Format),
}

/// Reduction of the ranks' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Maximum.
    Max,
    /// Minimum.
    Min,
    /// Mean.
    Mean,
}

impl NcclDataType {
    /// The type that a number of `ncclDataType_t` stands for.
    pub fn of(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Integer(1, true),
            1 => Self::Integer(1, false),
            2 => Self::Integer(4, true),
            3 => Self::Integer(4, false),
            4 => Self::Integer(8, true),
            5 => Self::Integer(8, false),
            6 => Self::Float(Format::F16),
            7 => Self::Float(Format::F32),
            8 => Self::Float(Format::F64),
            9 => Self::Float(Format::Bf16),
            _ => return None,
        })
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Integer(bytes, _) => bytes,
            Self::Float(format) => format.bytes(),
        }
    }
}

impl ReduceOp {
    /// The reduction that a number of `ncclRedOp_t` stands for.
    pub fn of(number: i32) -> Option<Self> {
        [Self::Sum, Self::Product, Self::Max, Self::Min, Self::Mean]
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// The reduction of all ranks' parts, each the bytes of equally many numbers. Results are rounded to their type
    /// after each rank, as NCCL passes them on from one rank to the next.
    pub(super) fn reduce(self, element: NcclDataType, parts: &[Vec<u8>]) -> Vec<u8> {
        let bytes = element.bytes();
        let mut result = parts[0].clone();
        for (at, place) in result.chunks_exact_mut(bytes).enumerate() {
            let number = |part: &Vec<u8>| word(&part[at * bytes..][..bytes]);
            let numbers = parts.iter().map(number);
            let one = match element {
                NcclDataType::Integer(bytes, has_sign) => self.integers(numbers, bytes, has_sign),
                NcclDataType::Float(format) => self.floats(numbers, format, parts.len()),
            };
            place.copy_from_slice(&one.to_le_bytes()[..bytes]);
        }
        result
    }

    fn integers(self, numbers: impl Iterator<Item = u64>, bytes: usize, has_sign: bool) -> u64 {
        let unused = 64 - 8 * bytes as u32;
        let read = |bits: u64| {
            if has_sign {
                i128::from((bits << unused).cast_signed() >> unused)
            } else {
                i128::from(bits)
            }
        };
        let mut count = 0;
        let all = numbers.map(read).inspect(|_| count += 1);
        let result = all.reduce(|a, b| match self {
            Self::Sum | Self::Mean => a + b,
            Self::Product => a.wrapping_mul(b),
            Self::Max => a.max(b),
            Self::Min => a.min(b),
        });
        let result = result.unwrap_or(0);
        (if self == Self::Mean { result / count.max(1) } else { result }) as u64
    }

    fn floats(self, numbers: impl Iterator<Item = u64>, format: Format, count: usize) -> u64 {
        let rounded = |value| format.round(value, Rounding::NearestEven);
        let all = numbers.map(|bits| format.read(bits));
        let result = all.reduce(|a, b| match self {
            Self::Sum | Self::Mean => rounded(a + b),
            Self::Product => rounded(a * b),
            Self::Max => a.max(b),
            Self::Min => a.min(b),
        });
        let result = result.unwrap_or(0.0);
        let result = if self == Self::Mean { result / count as f64 } else { result };
        format.write(result, Rounding::NearestEven)
    }
}
