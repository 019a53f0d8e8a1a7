//! Layouts evaluated on a timeline: what the closed forms of [`crate::pipeline`] promise, played
//! through.

use ir::plan::{Breakdown, MemoryUse};
use ir::schedule::GenerateError;
use ir::units::{Bytes, Nanos, Seconds};
use rayon::prelude::*;
use simulator::{RankTimes, Simulation, SimulationError, simulate};
use traces::timeline::{Stream, Timeline};

use crate::evaluate::{Evaluation, Evaluator};
use crate::memory::ALLOCATOR_SLACK_PERCENT;
use crate::problem::Problem;
use crate::program::{Program, program};
use crate::search::{Found, Outcome, Request, search};
use crate::stages::Stage;

/// Why a layout cannot be simulated. For a checked layout, never.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The schedule does not take the layout's numbers.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Ranks wait for each other.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// A layout, played through.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The layout with the time and memory of the timeline.
    pub found: Found,
    /// What every pipeline rank does when, and what it holds.
    pub simulation: Simulation,
    /// What fills the memory of each pipeline rank at its peak.
    pub memory_by_rank: Vec<MemoryUse>,
}

/// Plays a step of a layout through, with every collective of every block.
///
/// # Errors
///
/// [`SimulateError`].
pub fn simulated(problem: &Problem, found: &Found) -> Result<Simulated, SimulateError> {
    let Program { schedule, work, stages } = program(problem, found)?;
    let mut simulation = simulate(&schedule, &work)?;
    let memory_by_rank = memory(problem, found, &stages, &simulation.timeline);
    let context = memory_by_rank.first().map_or(Bytes::ZERO, |memory| memory.context_bytes);
    let (memory, fullest_stage) = fullest(&memory_by_rank);
    add_slack(&mut simulation.timeline, context);
    let breakdown = breakdown(problem, found, &stages, &simulation);
    let step_time = Seconds::from(simulation.timeline.end());
    let evaluation = Evaluation { step_time, breakdown, memory, fullest_stage };
    let found = Found { evaluation, ..found.clone() };
    simulation.timeline.title = title(problem, &found);
    Ok(Simulated { found, simulation, memory_by_rank })
}

/// How many of the best plans by closed form are played through, at least. The two differ by a few per
/// cent, mostly in favour of few chunks.
const PLAYED: usize = 8;

/// Searches, and ranks the best plans by their timelines.
///
/// # Errors
///
/// [`SimulateError`].
pub fn search_simulated(
    problem: &Problem,
    request: &Request,
    observe: &mut dyn FnMut(usize, usize),
) -> Result<Outcome, SimulateError> {
    let wider = Request { top: request.top.max(PLAYED), ..*request };
    let mut outcome = search(problem, &wider, observe);
    let played: Result<Vec<Found>, SimulateError> = outcome
        .plans
        .par_iter()
        .map(|found| simulated(problem, found).map(|simulated| simulated.found))
        .collect();
    let memory = problem.hardware.memory;
    let (mut fitting, too_large): (Vec<Found>, Vec<Found>) =
        played?.into_iter().partition(|found| found.excess(memory) == Bytes::ZERO);
    fitting.sort_by(Found::order);
    fitting.truncate(request.top);
    outcome.plans = fitting;
    // Chunks of unequal size may hold more at a time than their mean, which the closed form takes.
    let closest = outcome.closest.take().into_iter().chain(too_large);
    outcome.closest = closest.min_by_key(|found| found.excess(memory));
    Ok(outcome)
}

/// The plan in words.
fn title(problem: &Problem, found: &Found) -> String {
    let layout = &found.layout;
    let m = layout.num_micro_batches;
    format!(
        "{} GPUs, {layout}, {}, {m} micro-batch{}",
        problem.limits.num_gpus,
        layout.schedule,
        if m == 1 { "" } else { "es" },
    )
}

/// Memory of the rank whose timeline peaks highest, by lines, and which rank that is: of equals the first.
fn fullest(uses: &[MemoryUse]) -> (MemoryUse, usize) {
    let uses = uses.iter().copied().zip(0..);
    uses.reduce(|fullest, next| if next.0.total() > fullest.0.total() { next } else { fullest })
        .unwrap_or_default()
}

/// Memory of each pipeline rank at the peak of its timeline, by lines.
fn memory(
    problem: &Problem,
    found: &Found,
    stages: &[Stage],
    timeline: &Timeline,
) -> Vec<MemoryUse> {
    let evaluator = Evaluator::new(problem, *found.layout);
    let peaks = timeline.tracks.iter().map(|track| track.peak_memory().unwrap_or_default());
    let uses = peaks.zip(stages).enumerate().map(|(rank, (peak, stage))| {
        let mut memory = evaluator.memory(&stage.holdings, rank);
        let kept = memory.activations_bytes + memory.recompute_bytes;
        let held = memory.total().saturating_sub(kept + memory.allocator_bytes);
        let beyond = peak.saturating_sub(held);
        memory.recompute_bytes = memory.recompute_bytes.min(beyond);
        memory.activations_bytes = beyond.saturating_sub(memory.recompute_bytes);
        memory.allocator_bytes = slack(peak, memory.context_bytes);
        memory
    });
    uses.collect()
}

/// What the allocator reserves beyond what is in use at most.
fn slack(peak: Bytes, context: Bytes) -> Bytes {
    Bytes::new(peak.saturating_sub(context).get() / 100 * ALLOCATOR_SLACK_PERCENT)
}

/// The allocator does not give back what it reserved at the peak, so its slack is there throughout.
fn add_slack(timeline: &mut Timeline, context: Bytes) {
    for track in &mut timeline.tracks {
        let slack = slack(track.peak_memory().unwrap_or_default(), context);
        for point in &mut track.memory {
            point.bytes += slack;
        }
    }
}

/// Where the time of the busiest rank goes.
fn breakdown(
    problem: &Problem,
    found: &Found,
    stages: &[Stage],
    simulation: &Simulation,
) -> Breakdown {
    let spent = |times: &RankTimes| {
        times.compute + times.update + times.waited.iter().copied().sum::<Nanos>()
    };
    let busiest = |best: usize, next: usize| {
        let is_busier = spent(&simulation.ranks[next]) > spent(&simulation.ranks[best]);
        if is_busier { next } else { best }
    };
    let Some(rank) = (0..simulation.ranks.len()).reduce(busiest) else {
        return Breakdown::default();
    };
    let times = &simulation.ranks[rank];
    let stage = &stages[rank];
    let m = f64::from(found.layout.num_micro_batches);
    let seconds = |time: Nanos| Seconds::from(time).get();
    let waited = |stream: Stream| seconds(times.waited[stream as usize]);
    // What is computed again is part of what the rank was seen to do.
    let again = stage.recompute * m;
    let compute = seconds(times.compute);
    let passes = stage.forward + stage.input_grad + stage.weight_grad + stage.recompute;
    let host = (passes.host * m).get().min(compute);
    let recompute = again.compute.get().min(compute - host);
    let tensor_again = again.tensor.get().min(waited(Stream::Tensor));
    let step = seconds(simulation.timeline.end());
    let evaluator = Evaluator::new(problem, *found.layout);
    let messages: f64 = evaluator.messages(stage).iter().map(|time| m * time.get()).sum();
    let idle = (step - seconds(spent(times))).max(0.0);
    // Where the rank waits for its messages, the simulation has them among its passes.
    let waits = evaluator.waits_for_messages();
    let waited_for = if waits { messages.min(compute - host - recompute) } else { 0.0 };
    let mut breakdown = Breakdown {
        compute_seconds: compute - host - recompute - waited_for,
        host_seconds: host,
        recompute_seconds: recompute + tensor_again,
        tensor_parallel_seconds: waited(Stream::Tensor) - tensor_again,
        context_parallel_seconds: waited(Stream::Context),
        expert_parallel_seconds: waited(Stream::Expert),
        pipeline_messages_seconds: if waits { waited_for } else { messages.min(idle) },
        pipeline_bubble_seconds: 0.0,
        data_parallel_seconds: waited(Stream::Data),
        optimizer_seconds: seconds(times.update),
    };
    breakdown.pipeline_bubble_seconds = (step - breakdown.total()).max(0.0);
    breakdown
}
