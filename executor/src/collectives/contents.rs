//! Numbers in ranks' buffers before an operation, and the expected ones after it.

use std::collections::BTreeSet;

use burn::tensor::TensorData;
use burn::tensor::backend::Backend;
use executor_communicators::Reduction;
use executor_kernels::array::{Array, Element};
use traces::collectives::{BufferContents, InputChunk, Operation};

/// Number of elements after which the numbers of a piece repeat.
const PERIOD: usize = 16;

/// The numbers of which pieces consist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// 1 and -1, whose products are exact in any format, and whose sums stay small.
    Exact,
    /// From 1 to 2, different for each piece, so that a piece is identified by its number.
    Telling,
}

impl Numbers {
    fn of(self, piece: InputChunk, place: usize) -> f64 {
        let InputChunk { rank, chunk } = piece;
        match self {
            Self::Exact => {
                let mixed = (rank.wrapping_mul(73) ^ chunk.wrapping_mul(151) ^ (place as u32 * 31))
                    .wrapping_mul(0x9E37_79B1);
                [-1.0, 1.0][(mixed >> 16) as usize % 2]
            }
            Self::Telling => {
                // Fractional parts of multiples of the golden ratio are as far apart as possible.
                const GOLDEN: f64 = 0.618_033_988_749_895;
                1.0 + (f64::from(rank * 64 + chunk + 1) * GOLDEN).fract()
            }
        }
    }
}

/// Contents of the buffers of a group's ranks before and after an operation.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The operation.
    pub operation: Operation,
    /// The reduction of reducing operations.
    pub reduction: Reduction,
    /// The numbers of which pieces consist.
    pub numbers: Numbers,
    /// The pieces before.
    pub before: BufferContents,
    /// The pieces after, by the operation's definition.
    pub after: BufferContents,
}

impl Contents {
    /// The contents of an operation among `num_ranks` ranks.
    pub fn new(
        operation: Operation,
        num_ranks: u32,
        reduction: Reduction,
        numbers: Numbers,
    ) -> Self {
        let (before, after) = (operation.before(num_ranks), operation.after(num_ranks));
        Self { operation, reduction, numbers, before, after }
    }

    /// Number of participating ranks.
    pub fn num_ranks(&self) -> u32 {
        self.before.num_ranks()
    }

    /// Number of slots of a buffer.
    pub fn num_slots(&self) -> u32 {
        self.before.num_slots()
    }

    /// The number at a place of a slot with these pieces; none if there are no pieces.
    pub fn number(&self, pieces: &BTreeSet<InputChunk>, place: usize) -> Option<f64> {
        let numbers = pieces.iter().map(|piece| self.numbers.of(*piece, place));
        numbers.reduce(|a, b| match self.reduction {
            Reduction::Sum => a + b,
            Reduction::Product => a * b,
            Reduction::Max => a.max(b),
            Reduction::Min => a.min(b),
        })
    }

    /// Input of the rank at `position`, with slots of `length` elements; none if it has no filled slots.
    pub fn given<B: Backend>(
        &self,
        position: u32,
        length: usize,
        element: Element,
        device: &B::Device,
    ) -> Option<Array<B>> {
        let slots = self.filled(&self.before, position);
        let values = slots.iter().flat_map(|period| period.iter().cycle().take(length).copied());
        let values: Vec<f32> = values.collect();
        if slots.is_empty() {
            return None;
        }
        let count = values.len();
        Some(Array::from_data(TensorData::new(values, [count]), device).cast(element))
    }

    /// Number of wrong elements in the result of the rank at `position`, with slots of `length` elements.
    pub fn num_wrong<B: Backend>(
        &self,
        position: u32,
        length: usize,
        found: Option<&Array<B>>,
    ) -> u64 {
        let slots = self.filled(&self.after, position);
        let Some(found) = found.filter(|_| !slots.is_empty()) else {
            // Missing and superfluous elements count as wrong.
            return (slots.len() * length) as u64
                + found.map_or(0, |found| found.num_elements() as u64);
        };
        let data = found.clone().cast(Element::F32).into_data();
        let found: &[f32] = data.as_slice().expect("the data was converted to fp32");
        let expected = slots.iter().flat_map(|period| period.iter().cycle().take(length));
        let wrong = found
            .iter()
            .zip(expected)
            .filter(|(found, expected)| found.to_bits() != expected.to_bits());
        wrong.count() as u64 + found.len().abs_diff(slots.len() * length) as u64
    }

    /// The repeating numbers of each filled slot of a rank.
    fn filled(&self, contents: &BufferContents, position: u32) -> Vec<[f32; PERIOD]> {
        let slots = (0..self.num_slots()).map(|slot| contents.slot(position, slot));
        let filled = slots.filter(|pieces| !pieces.is_empty()).map(|pieces| {
            let number = |place| self.number(pieces, place).unwrap_or(f64::NAN) as f32;
            std::array::from_fn(number)
        });
        filled.collect()
    }
}
