//! Groups of ranks that take part in a collective.

use ir::layout::common_divisor;

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
    /// Where domains have unequal numbers of members, the smallest number counts: the stride may not divide the domain,
    /// or a group that would fit into one domain may reach into the next. For a group longer than a domain, a domain
    /// that it fills counts.
    pub(crate) fn members_within(self, ranks: u32) -> u32 {
        let (stride, size) = (self.stride.max(1), self.size.max(1));
        let span = stride.saturating_mul(size);
        if span <= ranks && ranks != u32::MAX && !ranks.is_multiple_of(span) {
            return (common_divisor(ranks.into(), span.into()) as u32 / stride).max(1);
        }
        (ranks / stride).clamp(1, size)
    }
}
