//! Lower bounds of the step time of an assignment, known without simulating its schedule.

use ir::framework::WhenReduced;
use ir::layout::{Layout, ZeroStage};
use ir::schedule::ActionKind;
use ir::units::Nanos;
use simulator::{MinPassTimes, StepTail, Transfer, lower_bound};

use super::assignment::Assignment;
use super::work::Builder;

impl Assignment<'_> {
    /// Lower bound of the step time of a layout.
    pub fn lower_bound(&self, layout: &Layout) -> Nanos {
        self.lower_bound_after(layout, self.lower_bound_of_all(layout))
    }

    /// Lower bound of the end of all passes, for every layout with this schedule, whatever its sharding of states.
    pub fn lower_bound_of_all(&self, layout: &Layout) -> Nanos {
        Builder::new(self, layout).lower_bound_of_passes(false)
    }

    /// [`Self::lower_bound`], given the bound of all layouts of the assignment.
    pub fn lower_bound_after(&self, layout: &Layout, of_all: Nanos) -> Nanos {
        let builder = Builder::new(self, layout);
        let passes = if builder.gathers { builder.lower_bound_of_passes(true) } else { of_all };
        builder.step_tail().after(passes)
    }
}

impl Builder<'_> {
    fn lower_bound_of_passes(&self, gathers: bool) -> Nanos {
        let (p, m) = (self.layout.pipeline_parallel, self.layout.num_micro_batches);
        lower_bound(self.layout.schedule, p, m, &self.min_pass_times(gathers))
    }

    /// Minimum time of each stage for a micro-batch, with or without gathering parameters.
    fn min_pass_times(&self, gathers: bool) -> Vec<MinPassTimes> {
        let schedule = self.layout.schedule;
        let overlaps = schedule.overlaps_passes();
        self.assignment.of_stages(|index| {
            let stage = &self.assignment.stages[index];
            let gather = if gathers { self.gather(index) } else { None };
            let gather = gather.map_or(Nanos::ZERO, |gather| gather.time);
            let time = |kind: ActionKind| {
                let pass = stage.pass(kind);
                let waits = if kind == ActionKind::WeightGrad { Nanos::ZERO } else { gather };
                pass.least(overlaps)
                    + waits
                    + self.assignment.waited_messages(schedule, index, kind)
            };
            let sends = self.sends(stage).map(|message| message.time);
            let whole = [ActionKind::Forward, ActionKind::Backward].map(time);
            let apart = [ActionKind::InputGrad, ActionKind::WeightGrad].map(time);
            MinPassTimes::new(schedule, whole, apart, sends)
        })
    }

    /// Minimum time of a step after its last pass.
    fn step_tail(&self) -> StepTail {
        let any = self.any_replicas();
        if any.updates_each() || any.is_asynchronous() {
            return StepTail::default();
        }
        let reductions = self.assignment.of_stages(|stage| self.last_reduction(stage));
        let Assignment { held, ranks, stages, .. } = self.assignment;
        let transfers = self.assignment.of_stages(|stage| self.transfers(stage));
        let of_rank =
            |rank| ranks.stages(rank, stages.len()).map(|it| transfers[it]).sum::<Nanos>();
        let update = |(rank, held)| Nanos::from(self.replicas_of(rank).update(held));
        let update = held.iter().enumerate().map(update).max();
        StepTail {
            until_group_collective: reductions.into_iter().min().unwrap_or_default(),
            transfers: (0..held.len()).map(of_rank).max().unwrap_or_default(),
            update: self.norm().time + update.unwrap_or_default(),
        }
    }

    /// Time of a stage's gathers and reductions in a step, except for those that follow an update.
    fn transfers(&self, stage: usize) -> Nanos {
        let buckets = self.buckets(stage);
        let time = |transfer: Option<Transfer>| {
            transfer.map_or(Nanos::ZERO, |transfer| transfer.time * buckets)
        };
        let reduce = time(self.reduce(stage));
        let gather = time(self.gather(stage));
        let copies = self.assignment.ranks.placement.num_copies();
        let each = u64::from(self.layout.num_micro_batches / copies);
        let zero = self.layout.zero_stage;
        let gathers = match zero {
            ZeroStage::None => 0,
            ZeroStage::Parameters => 2 * each,
            _ => u64::from(!self.gathers_after_update()),
        };
        let reduces = if self.any_replicas().reduces_each() { each } else { 1 };
        gather * gathers + reduce * reduces
    }

    /// Time of the reduction that begins after the last gradient of a stage.
    fn last_reduction(&self, stage: usize) -> Nanos {
        let buckets = self.buckets(stage);
        let reduce = self.reduce(stage);
        let is_overlapped = self.layout.zero_stage >= ZeroStage::Gradients
            || self.framework().gradients.reduced == WhenReduced::BesideBackward;
        let at_once = if is_overlapped { 1 } else { buckets };
        reduce.map_or(Nanos::ZERO, |reduce| reduce.time * at_once)
    }
}
