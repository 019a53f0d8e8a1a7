//! Simulation of a step, with its timeline, breakdown and memory.

use cost_models::block::played as played_block;
use ir::graph::Axis;
use ir::layout::{Layout, MicroBatchesByGroup};
use ir::plan::{Breakdown, MemoryUse};
use ir::schedule::{
    ActionKind, GenerateError, Schedule, add_optimizer_steps, add_reduction, generate,
};
use ir::units::{Nanos, Seconds};
use simulator::{
    ActivationBytes, ExchangeSpan, Order, Played, RankTimes, RunId, Simulation, SimulationError,
    peak_memory, played, simulate_in_detail,
};
use traces::timeline::{Stream, Timeline};

use super::breakdown::breakdown;
use super::orders::numbers;
use super::work::{PassedBlock, Step, bucket_start};

/// Time and memory of a layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Time of a step.
    pub step_time: Seconds,
    /// Breakdown of the time, in the mean over all pipeline ranks.
    pub breakdown: Breakdown,
    /// Memory of the rank that needs most.
    pub memory: MemoryUse,
    /// Index of the fullest pipeline rank.
    pub fullest_rank: usize,
}

/// Reason why a layout cannot be simulated. For a checked layout, never.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The schedule does not allow the layout's numbers.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Replicas in groups have steps of their own, but one step was asked for.
    #[error(
        "replicas lie in groups with {by_group} micro-batches, and have steps of their own\nhint: a plan on GPUs of one kind"
    )]
    ReplicasByGroup {
        /// Micro-batches of each group's replicas.
        by_group: MicroBatchesByGroup,
    },
    /// Ranks deadlock.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// The most exchanges in a timeline: as a Chrome trace, half a gigabyte.
const MOST_EXCHANGES: u64 = 1 << 21;

/// A simulated layout.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Time and memory.
    pub evaluation: Evaluation,
    /// The simulation: actions and memory of every pipeline rank over time.
    pub simulation: Simulation,
    /// Breakdown of the time of each pipeline rank.
    pub breakdown_by_rank: Vec<Breakdown>,
    /// Memory of each pipeline rank at its peak.
    pub memory_by_rank: Vec<MemoryUse>,
}

impl Step<'_> {
    /// The step's schedule, with its reductions and updates.
    ///
    /// # Errors
    ///
    /// A schedule that does not take the layout's numbers; never for a checked layout.
    pub fn schedule(&self) -> Result<Schedule, GenerateError> {
        let (kind, p, m, v) = numbers(&self.layout);
        Ok(add_optimizer_steps(&add_reduction(&generate(kind, p, m, v)?)))
    }

    /// Simulates the step. The timeline has every exchange of every block, unless there are too many to draw; times and
    /// memory are the same without them.
    ///
    /// # Errors
    ///
    /// [`SimulateError`].
    pub fn simulate(&self) -> Result<Simulated, SimulateError> {
        let schedule = self.schedule()?;
        let parts = self.assignment.parts();
        let slowdown = self.assignment.problem.hardware.slowdown_per_mille();
        let exchanges = |run: RunId| {
            let mut exchanges = Vec::new();
            let mut now = Nanos::ZERO;
            let parts = &parts[self.assignment.group_of_stage(run.stage as usize)];
            for block in self.blocks_of(run) {
                let of_block: Vec<_> = self.assignment.parts_of(parts, block, run.kind).collect();
                let time = played_block(&of_block, slowdown, |played| {
                    exchanges.push(ExchangeSpan {
                        stream: stream(played.exchange.axis),
                        collective: played.exchange.collective,
                        bytes: played.exchange.bytes,
                        start: now + played.start,
                        end: now + played.end,
                    });
                });
                now += time.total();
            }
            exchanges
        };
        let is_drawn = self.num_exchanges(&exchanges) <= MOST_EXCHANGES;
        let drawn = |run: RunId| if is_drawn { exchanges(run) } else { Vec::new() };
        let mut simulation = simulate_in_detail(&schedule, &self.work, &drawn)?;
        let end = simulation.timeline.end();
        let (evaluation, breakdown_by_rank, memory_by_rank) =
            self.read_off(&Order::new(&schedule), &simulation.ranks, end);
        add_slack(&mut simulation.timeline, &memory_by_rank);
        let tracks = simulation.timeline.tracks.iter_mut();
        for (track, group) in tracks.zip(&self.assignment.groups) {
            if let Some(group) = self.assignment.problem.name_of(*group) {
                track.name = format!("{} on {group}", track.name);
            }
        }
        simulation.timeline.title = title(self.assignment.problem.limits.num_gpus, &self.layout);
        simulation.timeline.remark = remark(&evaluation.breakdown, is_drawn);
        Ok(Simulated { evaluation, simulation, breakdown_by_rank, memory_by_rank })
    }

    /// The blocks of a run of a pass.
    pub(super) fn blocks_of(&self, run: RunId) -> Vec<PassedBlock> {
        let passed = self.assignment.passed(run.stage as usize, run.kind);
        let start = |bucket| bucket_start(passed.len(), bucket, run.of);
        passed[start(run.nth)..start(run.nth + 1)].to_vec()
    }

    /// Upper bound of the number of exchanges in all passes of the step.
    fn num_exchanges(&self, exchanges: &dyn Fn(RunId) -> Vec<ExchangeSpan>) -> u64 {
        let of_stage = |stage: u32| {
            let of = |kind| exchanges(RunId { stage, kind, nth: 0, of: 1 }).len() as u64;
            let apart = of(ActionKind::InputGrad) + of(ActionKind::WeightGrad);
            of(ActionKind::Forward) + apart.max(of(ActionKind::Backward))
        };
        let of_micro_batch: u64 = (0..self.work.stages.len() as u32).map(of_stage).sum();
        of_micro_batch * u64::from(self.layout.num_micro_batches)
    }

    /// Time, memory and their breakdown, without a timeline.
    ///
    /// # Errors
    ///
    /// [`SimulateError`].
    pub fn evaluate(&self) -> Result<Evaluation, SimulateError> {
        let (kind, p, m, v) = numbers(&self.layout);
        let order = Order::of_family(kind, p, m, v)?;
        let Played { end, ranks } = played(&order, &self.work)?;
        Ok(self.read_off(&order, &ranks, end).0)
    }

    fn read_off(
        &self,
        order: &Order,
        ranks: &[RankTimes],
        end: Nanos,
    ) -> (Evaluation, Vec<Breakdown>, Vec<MemoryUse>) {
        let stages: Vec<ActivationBytes> =
            self.work.stages.iter().map(|stage| stage.kept).collect();
        let kept = peak_memory(order, &stages);
        let memory_by_rank = self.assignment.memory(&self.layout, &kept);
        let (memory, fullest_rank) = self.assignment.fullest(&memory_by_rank);
        let breakdown_by_rank = breakdown(self, order, ranks, end);
        let alike: Vec<(Breakdown, u32)> = breakdown_by_rank.iter().map(|it| (*it, 1)).collect();
        let breakdown = Breakdown::mean(&alike);
        let evaluation =
            Evaluation { step_time: Seconds::from(end), breakdown, memory, fullest_rank };
        (evaluation, breakdown_by_rank, memory_by_rank)
    }
}

/// Stream of exchanges along an axis; both axes of tensor parallelism share one.
pub(super) const fn stream(axis: Axis) -> Stream {
    match axis {
        Axis::Tensor | Axis::ExpertTensor => Stream::Tensor,
        Axis::Context => Stream::Context,
        Axis::Expert => Stream::Expert,
    }
}

/// Title of the timeline: the plan in words.
pub(crate) fn title(num_gpus: u32, layout: &Layout) -> String {
    let m = layout.num_micro_batches;
    let plural = if m == 1 { "" } else { "es" };
    let gpus = if num_gpus == 1 { "GPU" } else { "GPUs" };
    format!("{num_gpus} {gpus}, {layout}, {}, {m} micro-batch{plural}", layout.schedule)
}

/// Terms of passes that a timeline does not show, as shares of the step, and terms that it lacks.
fn remark(breakdown: &Breakdown, has_exchanges: bool) -> String {
    /// Shares below this, in per cent, are left out.
    const LEAST: f64 = 0.5;
    let spent = [
        ("recompute, within backward", breakdown.recompute_seconds),
        ("waiting for the host, within passes", breakdown.host_seconds),
    ];
    let share = |seconds: f64| 100.0 * seconds / breakdown.total();
    let spent = spent.into_iter().filter(|(_, seconds)| share(*seconds) >= LEAST);
    let mut parts: Vec<String> =
        spent.map(|(what, seconds)| format!("{what}: {:.1} %", share(seconds))).collect();
    if !has_exchanges {
        parts.push("too many exchanges within passes to show them".to_owned());
    }
    parts.join("  \u{b7}  ")
}

/// Adds the allocator's slack and the memory of the update beyond that of the passes to the timeline. They are added
/// throughout, as reserved memory is not given back.
fn add_slack(timeline: &mut Timeline, memory_by_rank: &[MemoryUse]) {
    for (track, memory) in timeline.tracks.iter_mut().zip(memory_by_rank) {
        let fullest = track.memory.iter().map(|point| point.bytes).max().unwrap_or_default();
        let more = memory.total().saturating_sub(fullest);
        for point in &mut track.memory {
            point.bytes += more;
        }
    }
}
