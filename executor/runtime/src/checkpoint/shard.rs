//! Shards: the elements of a parameter that one rank holds, and the overlap of two ranks' shards.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::parameter::ParameterId;

/// Elements of a parameter: a part along each dimension, as tensor and expert parallelism shard it; and within the part
/// a range in row-major order, as ZeRO shards the part further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// The part along each dimension of the whole parameter.
    #[serde(with = "ranges")]
    pub part: Vec<Range<usize>>,
    /// Range of the part's elements, in row-major order.
    #[serde(with = "range")]
    pub flat: Range<usize>,
}

/// Kind of state of an element in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PieceKind {
    /// The weight that is updated.
    Weight,
    /// The running mean of gradients, or momentum.
    FirstMoment,
    /// The running mean of squared gradients.
    SecondMoment,
}

impl fmt::Display for PieceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weight => "weight",
            Self::FirstMoment => "first_moment",
            Self::SecondMoment => "second_moment",
        })
    }
}

/// A shard of a parameter's weights or moments that a rank holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// The parameter.
    pub parameter: ParameterId,
    /// The kind of state.
    pub kind: PieceKind,
    /// The elements.
    pub shard: Shard,
}

impl Piece {
    /// Name of the tensor in its rank's file, for piece number `index`.
    pub(super) fn tensor_name(&self, index: usize) -> String {
        format!("{index}.{}.{}", self.parameter, self.kind)
    }
}

impl Shard {
    /// All elements of a parameter of shape `shape`.
    pub fn whole(shape: &[usize]) -> Self {
        Self::of_part(shape.iter().map(|size| 0..*size).collect())
    }

    /// All elements of a part.
    pub fn of_part(part: Vec<Range<usize>>) -> Self {
        let len = part.iter().map(ExactSizeIterator::len).product();
        Self { part, flat: 0..len }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.flat.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.flat.is_empty()
    }

    /// Returns whether the shard is within a parameter of shape `shape`.
    pub(super) fn fits(&self, shape: &[usize]) -> bool {
        let within = |range: &Range<usize>, end| range.start <= range.end && range.end <= end;
        let parts = || self.part.iter().map(ExactSizeIterator::len);
        self.part.len() == shape.len()
            && self.part.iter().zip(shape).all(|(range, size)| within(range, *size))
            && parts()
                .try_fold(1usize, usize::checked_mul)
                .is_some_and(|len| within(&self.flat, len))
    }

    /// Calls `copy` for every run of elements in both shards, in order, with its offset in this shard, its offset in
    /// `other` and its length.
    ///
    /// ```text
    /// part:   rows of the box that both parts share, each as long as it is contiguous in both
    /// flat:   the elements of each row that lie in both ranges
    /// ```
    pub(super) fn overlap(&self, other: &Self, mut copy: impl FnMut(usize, usize, usize)) {
        let common: Vec<Range<usize>> = self
            .part
            .iter()
            .zip(&other.part)
            .map(|(a, b)| a.start.max(b.start)..a.end.min(b.end))
            .collect();
        if common.iter().any(Range::is_empty) {
            return;
        }
        // Dimensions from `outer` on make one row: all of them but the first are whole in both.
        let is_whole = |dim: usize| common[dim] == self.part[dim] && common[dim] == other.part[dim];
        let inner_whole = (0..common.len()).rev().take_while(|dim| is_whole(*dim)).count();
        let outer = common.len().saturating_sub(inner_whole + 1);
        let row_len: usize = common[outer..].iter().map(ExactSizeIterator::len).product();
        let num_rows: usize = common[..outer].iter().map(ExactSizeIterator::len).product();
        let (own_strides, other_strides) = (self.strides(), other.strides());
        // Offsets of a row in both parts.
        let begin = |row: usize| {
            let (mut rest, mut own, mut others) = (row, 0, 0);
            for dim in (0..common.len()).rev() {
                let mut index = common[dim].start;
                if dim < outer {
                    index += rest % common[dim].len();
                    rest /= common[dim].len();
                }
                own += (index - self.part[dim].start) * own_strides[dim];
                others += (index - other.part[dim].start) * other_strides[dim];
            }
            (own, others)
        };
        // Later rows have higher offsets in both: a search skips the rows before the ranges, and the loop ends at the
        // first row after them.
        let is_before = |row| {
            let (own, others) = begin(row);
            own + row_len <= self.flat.start || others + row_len <= other.flat.start
        };
        for row in first_not(is_before, num_rows)..num_rows {
            let (own, others) = begin(row);
            if own >= self.flat.end || others >= other.flat.end {
                break;
            }
            let skipped = self.flat.start.saturating_sub(own);
            let skipped = skipped.max(other.flat.start.saturating_sub(others));
            let end = row_len.min(self.flat.end - own).min(other.flat.end - others);
            if skipped < end {
                let own = own + skipped - self.flat.start;
                copy(own, others + skipped - other.flat.start, end - skipped);
            }
        }
    }

    /// The first range of elements that none of `others` has.
    pub(super) fn first_gap<'a>(
        &self,
        others: impl IntoIterator<Item = &'a Self>,
    ) -> Option<Range<usize>> {
        let mut covered = Vec::new();
        for other in others {
            self.overlap(other, |start, _, len| covered.push(start..start + len));
        }
        covered.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        for range in covered {
            if range.start > end {
                return Some(end..range.start);
            }
            end = end.max(range.end);
        }
        (end < self.len()).then(|| end..self.len())
    }

    /// A key of the shard, for equality and ordering.
    pub(super) fn key(&self) -> Vec<usize> {
        let ranges = self.part.iter().chain([&self.flat]);
        ranges.flat_map(|range| [range.start, range.end]).collect()
    }

    /// Stride of the part along each dimension.
    fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.part.len()];
        for dim in (1..self.part.len()).rev() {
            strides[dim - 1] = strides[dim] * self.part[dim].len();
        }
        strides
    }
}

/// The first number below `end` for which `is_before` is false, or `end`. For all smaller numbers, `is_before` is true.
fn first_not(is_before: impl Fn(usize) -> bool, end: usize) -> usize {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A range as `[start, end]`.
mod range {
    use std::ops::Range;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        range: &Range<usize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (range.start, range.end).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Range<usize>, D::Error> {
        let (start, end) = Deserialize::deserialize(deserializer)?;
        Ok(start..end)
    }
}

/// Ranges as a list of `[start, end]`.
mod ranges {
    use std::ops::Range;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        ranges: &[Range<usize>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ranges.iter().map(|range| (range.start, range.end)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Range<usize>>, D::Error> {
        let ranges: Vec<(usize, usize)> = Deserialize::deserialize(deserializer)?;
        Ok(ranges.into_iter().map(|(start, end)| start..end).collect())
    }
}
