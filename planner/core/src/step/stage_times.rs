//! Times of blocks by the stage that has them, where GPUs are of several kinds.

use ir::graph::Recompute;
use ir::units::Nanos;

use super::chain::ChainIndex;
use super::ranks::PipelineRanks;
use super::shape::Shape;
use crate::partition::partition_of;
use crate::problem::Problem;

/// Times of blocks on the GPUs of each stage.
pub struct StageTimes {
    /// Time of forward and backward of the first blocks, in each group.
    prefixes: Vec<Vec<Nanos>>,
    /// Group of each pipeline rank; stages go round the ranks.
    groups: Vec<usize>,
}

impl StageTimes {
    /// The times of a shape's blocks on pipeline ranks.
    pub fn new(
        problem: &Problem,
        chain: &ChainIndex,
        shape: &Shape,
        recompute: Recompute,
        ranks: &PipelineRanks,
    ) -> Self {
        let prefix = |group| shape.prefix(chain, recompute, group);
        let of_rank = |rank| problem.group_of(ranks, rank);
        Self {
            prefixes: (0..problem.num_groups()).map(prefix).collect(),
            groups: (0..ranks.group.size as usize).map(of_rank).collect(),
        }
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
