//! Times of blocks by the stage that has them, where GPUs are of several kinds.

use ir::units::Nanos;

use crate::partition::partition_of;

/// Times of blocks on the GPUs of each stage.
pub struct StageTimes {
    /// Time of forward and backward of the first blocks, in each group.
    prefixes: Vec<Vec<Nanos>>,
    /// Group of each pipeline rank; stages go round the ranks.
    groups: Vec<usize>,
}

impl StageTimes {
    /// Times of the first blocks in each group, and the group of each pipeline rank.
    pub const fn new(prefixes: Vec<Vec<Nanos>>, groups: Vec<usize>) -> Self {
        Self { prefixes, groups }
    }

    /// Ends of stages that minimise the time of the slowest, and even out the others, where `fits(s, start, end)` says
    /// that stage `s` can hold blocks `start` to `end`; `None` if no partition fits.
    pub fn balanced(
        &self,
        num_stages: usize,
        fits: impl Fn(usize, usize, usize) -> bool,
    ) -> Option<Vec<usize>> {
        let num_blocks = self.prefixes[0].len() - 1;
        let time = |stage: usize, start: usize, end: usize| {
            let prefix = &self.prefixes[self.groups[stage % self.groups.len()]];
            prefix[end] - prefix[start]
        };
        partition_of(num_blocks, num_stages, self.groups.len(), time, fits)
    }
}
