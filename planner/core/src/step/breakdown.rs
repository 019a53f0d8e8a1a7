//! Breakdown of the time of a step.

use cost_models::block::ByAxis;
use ir::graph::Axis;
use ir::plan::Breakdown;
use ir::schedule::ActionKind;
use ir::units::{Nanos, Seconds};
use simulator::{Order, RankTimes};

use super::work::Step;

/// Breakdown of each rank's time: its passes, its waits, and the rest, which is the pipeline bubble.
pub(super) fn breakdown(
    step: &Step<'_>,
    order: &Order,
    ranks: &[RankTimes],
    end: Nanos,
) -> Vec<Breakdown> {
    ranks
        .iter()
        .enumerate()
        .map(|(rank, times)| {
            let mut spent = Spent::default();
            for action in order.passes(rank) {
                spent.add(step, action.stage as usize, action.kind);
            }
            spent.of(times, end)
        })
        .collect()
}

/// Time of the passes of a rank, by term of the breakdown.
#[derive(Default)]
struct Spent {
    compute: Nanos,
    recompute: Nanos,
    host: Nanos,
    waits: ByAxis<Nanos>,
    messages: Nanos,
}

impl Spent {
    fn add(&mut self, step: &Step<'_>, stage: usize, kind: ActionKind) {
        let of_stage = &step.assignment.stages[stage];
        let pass = match kind {
            ActionKind::Forward => of_stage.forward,
            ActionKind::Backward => of_stage.backward,
            ActionKind::InputGrad => of_stage.input_grad,
            _ => of_stage.weight_grad,
        };
        self.compute += pass.compute;
        self.host += pass.host;
        for (sum, time) in self.waits.iter_mut().zip(pass.waits) {
            *sum += time;
        }
        if matches!(kind, ActionKind::Backward | ActionKind::InputGrad) {
            self.recompute += of_stage.recompute.total();
        }
        let schedule = step.layout.schedule;
        self.messages += step.assignment.waited_messages(schedule, stage, kind);
    }

    fn of(mut self, times: &RankTimes, end: Nanos) -> Breakdown {
        // Two overlapped passes hide each other's exchanges, and take less time than one after the other.
        let mut hidden = self.total().saturating_sub(times.passes);
        // Time of passes in addition to their blocks: copies into and out of the buffers of replicas.
        let copied = times.passes.saturating_sub(self.total());
        for wait in self.waits.iter_mut().rev() {
            let of_this = hidden.min(*wait);
            *wait = *wait - of_this;
            hidden = hidden - of_this;
        }
        self.compute = self.compute.saturating_sub(hidden) + copied;
        let seconds = |time: Nanos| Seconds::from(time).get();
        Breakdown {
            compute_seconds: seconds(self.compute),
            recompute_seconds: seconds(self.recompute),
            host_seconds: seconds(self.host),
            tensor_parallel_seconds: seconds(
                self.waits[Axis::Tensor as usize] + self.waits[Axis::ExpertTensor as usize],
            ),
            context_parallel_seconds: seconds(self.waits[Axis::Context as usize]),
            expert_parallel_seconds: seconds(self.waits[Axis::Expert as usize]),
            pipeline_messages_seconds: seconds(self.messages + times.messages),
            pipeline_bubble_seconds: seconds(end.saturating_sub(times.spent())),
            data_parallel_seconds: seconds(
                times.slowed + times.transfers + times.group_collectives,
            ),
            offload_seconds: seconds(times.copies),
            optimizer_seconds: seconds(times.update),
        }
    }

    fn total(&self) -> Nanos {
        let waits: Nanos = self.waits.into_iter().sum();
        self.compute + self.recompute + self.host + waits + self.messages
    }
}
