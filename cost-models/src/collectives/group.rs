//! Groups of ranks that take part in a collective.

/// The ranks `first, first + stride, ..` that take part in a collective.
///
/// `first` is a multiple of the ranks that the group spans, as in groups of a mesh: a group of stride 1 and size 8 is
/// within one node of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StridedGroup {
    /// Number of ranks.
    pub size: u32,
    /// Distance between neighbours, in ranks.
    pub stride: u32,
}

impl StridedGroup {
    /// A group of `size` consecutive ranks.
    pub const fn contiguous(size: u32) -> Self {
        Self { size, stride: 1 }
    }

    /// Number of members within one domain of `ranks` ranks; at least one.
    ///
    /// Where the stride does not divide the domain, or groups that would fit in one end beyond it, the emptiest domain
    /// counts; a longer group counts those that it fills.
    pub(crate) fn members_within(self, ranks: u32) -> u32 {
        let (stride, size) = (self.stride.max(1), self.size.max(1));
        let span = stride.saturating_mul(size);
        if span <= ranks && ranks != u32::MAX && !ranks.is_multiple_of(span) {
            return (common_divisor(ranks, span) / stride).max(1);
        }
        (ranks / stride).clamp(1, size)
    }
}

const fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
