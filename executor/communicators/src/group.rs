//! Groups of ranks.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Ranks that take part in a collective, in the order of their parts. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(Arc<[u32]>);

impl Group {
    /// A group of ranks, all different.
    pub fn new(ranks: impl Into<Vec<u32>>) -> Self {
        let ranks = ranks.into();
        let different: BTreeSet<u32> = ranks.iter().copied().collect();
        assert_eq!(different.len(), ranks.len(), "a group names each of its ranks once: {ranks:?}");
        Self(ranks.into())
    }

    /// The ranks of the group in order.
    pub fn ranks(&self) -> &[u32] {
        &self.0
    }

    /// Number of ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the group has no ranks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The previous and the next rank of `rank` on a ring: one rank if both are the same, none in a group of one rank.
    ///
    /// # Panics
    ///
    /// If the rank does not belong to the group.
    pub fn neighbours(&self, rank: u32) -> Vec<u32> {
        let (position, len) = (self.position_of(rank), self.len());
        let mut places = vec![(position + len - 1) % len, (position + 1) % len];
        places.dedup();
        places.into_iter().filter(|place| *place != position).map(|place| self.0[place]).collect()
    }

    /// Position of a rank that belongs to the group.
    ///
    /// # Panics
    ///
    /// If the rank does not belong to the group: ranks call collectives only of groups that include them.
    pub fn position_of(&self, rank: u32) -> usize {
        let Some(position) = self.position(rank) else {
            panic!("ranks and roots of a collective belong to its group: {rank} is not in {self}")
        };
        position
    }

    /// All ranks but one, in order.
    pub fn others(&self, rank: u32) -> Vec<u32> {
        self.0.iter().copied().filter(|other| *other != rank).collect()
    }

    /// Position of a rank, if it belongs to the group.
    pub fn position(&self, rank: u32) -> Option<usize> {
        self.0.iter().position(|member| *member == rank)
    }
}

/// The ranks, as in `[0, 2, 4]`.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
