//! Groups of ranks that take part in a collective.

/// The ranks `first, first + stride, ..` that take part in a collective.
///
/// `first` is assumed to be aligned, as in groups of a mesh: a group of stride 1 and size 8 is within one node of 8.
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
    /// Where the stride does not divide the domain, the emptiest domain counts.
    pub(crate) fn members_within(self, ranks: u32) -> u32 {
        (ranks / self.stride.max(1)).clamp(1, self.size.max(1))
    }
}
