//! Micro-batches of replicas that lie in groups of unlike GPUs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest number of groups of GPUs over which replicas are distributed.
pub const MOST_GROUPS: usize = 4;

/// Micro-batches of each replica in a step, by the group of GPUs that contains the replica; empty where groups of
/// replicas are not distinguished.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct MicroBatchesByGroup([u32; MOST_GROUPS]);

impl MicroBatchesByGroup {
    /// Replicas that are not distinguished.
    pub const NONE: Self = Self([0; MOST_GROUPS]);

    /// The numbers of micro-batches of each group's replicas; `None` for more than [`MOST_GROUPS`], or for none in a
    /// group.
    pub fn new(numbers: &[u32]) -> Option<Self> {
        let mut all = Self::NONE;
        all.0.get_mut(..numbers.len())?.copy_from_slice(numbers);
        (!numbers.contains(&0)).then_some(all)
    }

    /// The number of each group, in the order of the groups.
    pub fn numbers(&self) -> &[u32] {
        let len = self.0.iter().position(|number| *number == 0);
        &self.0[..len.unwrap_or(MOST_GROUPS)]
    }

    /// True if replicas are not distinguished.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// True if all replicas have the same number.
    pub fn are_equal(&self) -> bool {
        self.numbers().windows(2).all(|pair| pair[0] == pair[1])
    }
}

impl TryFrom<Vec<u32>> for MicroBatchesByGroup {
    type Error = String;

    fn try_from(numbers: Vec<u32>) -> Result<Self, String> {
        let fits = "takes up to 4 numbers of at least 1";
        Self::new(&numbers).ok_or_else(|| format!("`micro_batches_by_group` {fits}"))
    }
}

impl From<MicroBatchesByGroup> for Vec<u32> {
    fn from(all: MicroBatchesByGroup) -> Self {
        all.numbers().to_vec()
    }
}

impl fmt::Display for MicroBatchesByGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self.numbers().iter().map(u32::to_string).collect::<Vec<_>>();
        f.pad(&numbers.join("/"))
    }
}
