//! The ranks that take part.

/// The ranks `first, first + stride, ..` that take part in a collective.
///
/// `first` is taken to be aligned, as the ranks of a mesh are: a group of stride 1 and size 8 lies
/// within one node of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The number of ranks.
    pub size: u32,
    /// The distance between neighbours, in ranks.
    pub stride: u32,
}

impl Group {
    /// `size` ranks next to each other.
    pub const fn contiguous(size: u32) -> Self {
        Self { size, stride: 1 }
    }

    /// How many of the group lie within one domain of `ranks` ranks; at least one.
    ///
    /// Where the stride does not divide the domain, the emptiest domain counts.
    pub(crate) fn members_within(self, ranks: u32) -> u32 {
        (ranks / self.stride.max(1)).clamp(1, self.size.max(1))
    }
}
