//! Report of `planner simulate`.

use std::collections::BTreeMap;

use ir::layout::LayoutSpec;
use ir::plan::Breakdown;
use ir::replication::Straggler;
use ir::schedule::ActionKind;
use ir::units::{Nanos, Seconds};
use serde::Serialize;
use simulator::{CriticalStep, RankWork, Simulation, SteadyState, straggling_step};
use traces::timeline::{Activity, Track};

use planner_core::plan::CheckedPlan;
use planner_core::search::with_step;
use planner_core::step::{SimulateError, Simulated};

/// Simulation of a step, by pipeline rank. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationReport {
    /// Title of the plan.
    pub title: String,
    /// Time from the start of the step to its end.
    pub step_time_seconds: f64,
    /// Share of time in which GPUs wait for other pipeline ranks: the pipeline's bubble.
    pub idle_fraction: f64,
    /// Breakdown of the step time, as the mean over all GPUs.
    pub breakdown: Breakdown,
    /// Reports by pipeline rank.
    pub ranks: Vec<RankReport>,
    /// Composition of the critical path: seconds by kind of work.
    pub critical_path: BTreeMap<&'static str, f64>,
    /// A step in which one rank is slower than planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<StragglerReport>,
}

/// Time and memory of a pipeline rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankReport {
    /// Index of the pipeline rank.
    pub pipeline_rank: usize,
    /// Number of GPUs that do the same work at the same time.
    pub num_gpus: u32,
    /// Breakdown of the rank's time.
    pub breakdown: Breakdown,
    /// Time in which the rank waits for other pipeline ranks.
    pub idle_seconds: f64,
    /// Peak memory of the rank.
    pub peak_memory_bytes: u64,
}

/// Effect of one rank that is slower than planned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StragglerReport {
    /// Index of the slow rank.
    pub rank: u32,
    /// Factor by which the rank's passes take longer than planned.
    pub factor: f64,
    /// Step time, in which all ranks wait for the slowest. If replicas do not wait for each other, the time in steady
    /// state in which the number of updates equals the number of replicas.
    pub step_time_seconds: f64,
    /// Mean staleness of gradients, in updates, if replicas do not wait for each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_staleness: Option<f64>,
    /// Largest staleness of a gradient, in updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_staleness: Option<u64>,
}

impl SimulationReport {
    /// The report of a plan's step.
    pub fn new(checked: &CheckedPlan) -> Self {
        let Simulated { simulation, breakdown_by_rank, evaluation, .. } = &checked.simulated;
        let Simulation { timeline, critical_path, .. } = simulation;
        let ranks = breakdown_by_rank.iter().zip(&timeline.tracks).enumerate();
        let step_time_seconds = seconds(timeline.end());
        let idle = evaluation.breakdown.pipeline_bubble_seconds;
        Self {
            title: timeline.title.clone(),
            step_time_seconds,
            idle_fraction: idle / step_time_seconds.max(f64::MIN_POSITIVE),
            breakdown: evaluation.breakdown,
            ranks: ranks
                .map(|(rank, (spent, track))| RankReport::new(rank, spent, track))
                .collect(),
            critical_path: composition(critical_path),
            straggler: None,
        }
    }
}

impl RankReport {
    fn new(pipeline_rank: usize, breakdown: &Breakdown, track: &Track) -> Self {
        Self {
            pipeline_rank,
            num_gpus: track.num_ranks,
            breakdown: *breakdown,
            idle_seconds: breakdown.pipeline_bubble_seconds,
            peak_memory_bytes: track.peak_memory().unwrap_or_default().get(),
        }
    }
}

fn seconds(time: Nanos) -> f64 {
    Seconds::from(time).get()
}

/// Seconds of the critical path by kind of work. A part of an overlapped pair counts only with the time by which it
/// extends the path.
fn composition(path: &[CriticalStep]) -> BTreeMap<&'static str, f64> {
    let mut parts: BTreeMap<&'static str, Nanos> = BTreeMap::new();
    let mut until = Nanos::ZERO;
    for step in path {
        let time = step.end.saturating_sub(until.max(step.start));
        until = until.max(step.end);
        let name = match step.activity {
            Activity::Collective { .. } | Activity::Wait(_) => "collectives",
            Activity::Copy { .. } => "copies to and from the host",
            Activity::Action(action) => match action.kind {
                ActionKind::Forward => "forward",
                ActionKind::Backward => "backward",
                ActionKind::InputGrad => "input gradient",
                ActionKind::WeightGrad => "weight gradient",
                ActionKind::OptimizerStep => "update",
                ActionKind::Unshard | ActionKind::Reshard => "gathering of parameters",
                ActionKind::ReduceGrad => "reduction of gradients",
                _ => "messages between stages",
            },
        };
        *parts.entry(name).or_default() += time;
    }
    parts.retain(|_, time| *time > Nanos::ZERO);
    parts.into_iter().map(|(name, time)| (name, seconds(time))).collect()
}

/// Refuses a layout whose groups of replicas have different steps.
fn check_alike(layout: &LayoutSpec) -> Result<(), SimulateError> {
    let by_group = layout.micro_batches_by_group;
    if by_group.is_empty() { Ok(()) } else { Err(SimulateError::ReplicasByGroup { by_group }) }
}

/// Simulates a plan's step with one GPU slower than planned; `None` if the plan has no such rank. Ranks that exchange
/// data within the GPU's passes become equally slow. The step ends with the slowest replica, unless replicas do not
/// wait for each other.
///
/// # Errors
///
/// [`SimulateError`].
pub fn straggling(
    checked: &CheckedPlan,
    straggler: Straggler,
) -> Result<Option<StragglerReport>, SimulateError> {
    let CheckedPlan { problem, found, .. } = checked;
    let Straggler { rank, factor } = straggler;
    if rank >= found.layout.num_gpus() {
        return Ok(None);
    }
    check_alike(&found.layout)?;
    with_step(problem, found.layout, &found.stage_ends, |step| {
        let (step_time, staleness) = if let Some(mut shared) = step.shared_weights() {
            // Each replica is one rank.
            let compute = &mut shared.compute[rank as usize];
            *compute = Nanos::new((compute.as_f64() * factor).round() as u64);
            let SteadyState { step_time, mean_age, most_age } = shared.steady_state();
            (step_time, Some((mean_age, most_age)))
        } else {
            let ranks = &step.work.ranks;
            let is_of = |work: &RankWork| {
                (work.first_rank..).take(work.multiplicity as usize).any(|it| it == rank)
            };
            let pipeline_rank = ranks.iter().position(is_of).expect("every rank is of a stage");
            (straggling_step(&step.schedule()?, &step.work, pipeline_rank, factor)?, None)
        };
        Ok(Some(StragglerReport {
            rank,
            factor,
            step_time_seconds: seconds(step_time),
            mean_staleness: staleness.map(|(mean, _)| mean),
            most_staleness: staleness.map(|(_, most)| most),
        }))
    })
}
