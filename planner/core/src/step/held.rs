//! Memory of the ranks of an assignment.

use ir::layout::Layout;
use ir::plan::MemoryUse;
use ir::schedule::Updates;
use ir::units::{Bytes, Nanos};
use simulator::ActivationBytes;

use super::assignment::Assignment;
use super::holdings::Holdings;
use super::memory;

impl Assignment<'_> {
    /// Time of the passes of a micro-batch on the busiest rank.
    pub(crate) fn busiest_rank(&self) -> Nanos {
        let of_stage = |stage: usize| {
            let stage = &self.stages[stage];
            (stage.forward + stage.backward + stage.recompute).total()
        };
        let num_stages = self.stages.len();
        let ranks = 0..self.ranks.group.size as usize;
        let times = ranks.map(|rank| self.ranks.stages(rank, num_stages).map(of_stage).sum());
        times.max().unwrap_or_default()
    }

    /// Activations that a stage saves for backward.
    pub fn kept(&self, layout: &Layout, stage: usize) -> ActivationBytes {
        let holdings = &self.stages[stage].holdings;
        let rank = self.ranks.first_with(stage);
        ActivationBytes {
            activations: holdings.kept(layout.offload),
            // The last block's activations are freed once the loss's gradient is computed.
            for_weight_grad: holdings.kept_before_last(layout.offload),
            workspace: self.held[rank].in_backward(self.gradient_bytes()),
        }
    }

    /// Bytes of a weight's gradient, as a product computes it and as it is added to a sum.
    fn gradient_bytes(&self) -> u64 {
        let bytes = self.problem.state_bytes();
        bytes.parameter + bytes.gradient
    }

    /// Lower bound of each rank's activations at its peak: the activations held at its first backward, with the memory
    /// of backward.
    pub fn kept_at_least(&self, layout: &Layout) -> Vec<Bytes> {
        let (p, v, m) = (layout.pipeline_parallel, layout.virtual_stages, layout.num_micro_batches);
        let kept = |rank: u32| {
            let own = self.ranks.stages(rank as usize, self.stages.len());
            let of_stage = own.zip(0..).map(|(stage, nth)| {
                let numbers = [rank, p, v, m];
                let count = layout.schedule.in_flight_at_first_backward(numbers, nth);
                self.stages[stage].holdings.kept(layout.offload) * u64::from(count)
            });
            let in_backward = self.held[rank as usize].in_backward(self.gradient_bytes());
            of_stage.sum::<Bytes>() + in_backward
        };
        (0..p).map(kept).collect()
    }

    /// True if no rank's memory exceeds `most` with the lower bound of its activations.
    pub fn may_hold(&self, layout: &Layout, kept_at_least: &[Bytes], most: Bytes) -> bool {
        self.at_peaks(layout, kept_at_least).all(|memory| memory.total() <= most)
    }

    /// True if all ranks fit in memory with these saved activations.
    pub fn fits(&self, layout: &Layout, kept: &[Bytes]) -> bool {
        let at_peaks = self.at_peaks(layout, kept).zip(&self.groups);
        at_peaks
            .into_iter()
            .all(|(memory, group)| self.problem.fits_group_with_headroom(*group, &memory))
    }

    /// Memory of each pipeline rank at its peak under a layout, with these saved activations.
    pub fn memory(&self, layout: &Layout, kept: &[Bytes]) -> Vec<MemoryUse> {
        self.at_peaks(layout, kept).collect()
    }

    /// Memory of the rank that needs most at its peak.
    pub(crate) fn most_memory(&self, layout: &Layout, kept: &[Bytes]) -> Bytes {
        self.at_peaks(layout, kept).map(|memory| memory.total()).max().unwrap_or_default()
    }

    fn at_peaks(&self, layout: &Layout, kept: &[Bytes]) -> impl Iterator<Item = MemoryUse> {
        // Neighbouring ranks mostly hold the same memory throughout the step, except for versions of weights.
        let is_alike = layout.schedule.updates() == Updates::AfterFlush;
        let mut last: Option<(&Holdings, usize, MemoryUse)> = None;
        let ranks = self.held.iter().zip(&self.groups);
        ranks.zip(kept).enumerate().map(move |(rank, ((held, group), kept))| {
            let throughout = match last {
                Some((other, of, throughout)) if is_alike && of == *group && other == held => {
                    throughout
                }
                _ => memory::throughout(self.problem, layout, held, [rank, *group]),
            };
            last = Some((held, *group, throughout));
            let memory_budget = self.problem.memory_budget_of(*group);
            memory::at_peak(self.problem, layout, throughout, held, (*kept, memory_budget))
        })
    }
}
