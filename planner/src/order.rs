//! Time and activations of schedules that have no closed form: from the order of their actions.

use ir::layout::LayoutSpec;
use ir::schedule::{ActionKind, Schedule, Step, generate};
use ir::units::{Bytes, Nanos};
use simulator::{Durations, PassTimes, earliest};

use crate::pipeline::StageTime;
use crate::stages::Stage;

/// The order of a schedule's actions: the same for all layouts with as many ranks, chunks and
/// micro-batches.
#[derive(Clone, Debug)]
pub struct Order {
    schedule: Schedule,
}

/// When a step is over, in seconds from its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Ends {
    /// The last action of all.
    pub step: f64,
    /// The last action of each pipeline rank.
    pub ranks: Vec<f64>,
}

impl Order {
    /// The order of a layout's schedule.
    ///
    /// # Panics
    ///
    /// If the schedule does not take the layout's numbers, which a checked layout rules out.
    pub fn of(spec: &LayoutSpec) -> Self {
        let LayoutSpec { pipeline_parallel: p, virtual_stages: v, num_micro_batches: m, .. } =
            *spec;
        let schedule = generate(spec.schedule, p, m, v);
        Self { schedule: schedule.expect("a checked layout's schedule takes its numbers") }
    }

    /// When each rank is done if each goes on as soon as it can, given what chunks take.
    ///
    /// An overlapped pair takes as long as its parts one after the other: what they hide of each other's
    /// collectives, the timeline shows.
    pub fn ends(&self, chunks: &[StageTime]) -> Ends {
        // Rounded up, so that no bound on the time of a rank's passes exceeds this.
        let nanos = |seconds: f64| Nanos::new((seconds * 1e9).ceil() as u64);
        let passes = |chunk: &StageTime| PassTimes {
            forward: nanos(chunk.forward),
            input_grad: nanos(chunk.input_grad),
            weight_grad: nanos(chunk.weight_grad),
        };
        let stages = chunks.iter().map(passes).collect();
        let earliest = earliest(&self.schedule, &Durations { stages, send: Nanos::ZERO });
        let seconds = |time: Nanos| time.as_f64() * 1e-9;
        let ranks = earliest.ranks.iter().map(|rank| seconds(rank.end)).collect();
        Ends { step: seconds(earliest.makespan), ranks }
    }

    /// What each rank keeps for backward at its peak, with what is computed again at that time; `stages`
    /// by rank, `chunks` by chunk.
    pub fn activations(&self, stages: &[Stage], chunks: &[Stage]) -> Vec<Bytes> {
        let ranks = self.schedule.ranks().iter().zip(stages);
        ranks.map(|(steps, stage)| peak(steps, stage, chunks)).collect()
    }
}

/// The most that a rank keeps along its steps.
fn peak(steps: &[Step], stage: &Stage, chunks: &[Stage]) -> Bytes {
    let (mut held, mut peak) = (Bytes::ZERO, Bytes::ZERO);
    for step in steps {
        for action in step.actions() {
            if action.kind == ActionKind::Forward {
                held += chunks[action.stage as usize].holdings.saved_in_all();
                peak = peak.max(held);
            }
        }
        // Of an overlapped pair, the forward has begun when the backward computes again.
        for action in step.actions() {
            let holdings = &chunks[action.stage as usize].holdings;
            let freed = match action.kind {
                ActionKind::Backward => holdings.saved_in_all(),
                // What the last block keeps is done with once the loss's gradient is.
                ActionKind::InputGrad => holdings.saved_by_last,
                ActionKind::WeightGrad => holdings.saved,
                _ => continue,
            };
            if action.kind != ActionKind::WeightGrad {
                peak = peak.max(held + stage.holdings.recompute_working_set);
            }
            held = held.saturating_sub(freed);
        }
    }
    peak
}
