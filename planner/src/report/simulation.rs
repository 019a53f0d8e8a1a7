//! What `planner simulate` says of a step.

use std::collections::BTreeMap;

use ir::plan::Breakdown;
use ir::replication::Straggler;
use ir::schedule::ActionKind;
use ir::units::{Nanos, Seconds};
use serde::Serialize;
use simulator::{
    CriticalStep, Distribution, Jitter, RankWork, Replicas, Simulation, SteadyState, sample_steps,
    straggling_step,
};
use traces::timeline::{Activity, Track};

use planner_core::plan::CheckedPlan;
use planner_core::search::with_step;
use planner_core::step::{SimulateError, Simulated};

/// A step, rank by rank. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationReport {
    /// The plan in words.
    pub title: String,
    /// From the start of the step to its end.
    pub step_time_seconds: f64,
    /// The share of time in which GPUs wait for other pipeline ranks: the pipeline's bubble.
    pub idle_fraction: f64,
    /// Where the time goes, in the mean over all GPUs.
    pub breakdown: Breakdown,
    /// By pipeline rank.
    pub ranks: Vec<RankReport>,
    /// What the end of the step waited for, from its start on, by what was done.
    pub critical_path: BTreeMap<&'static str, f64>,
    /// Steps drawn at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterReport>,
    /// The same with a rank that is slower than it is planned to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<StragglerReport>,
}

/// How a pipeline rank spends the step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankReport {
    /// Which.
    pub pipeline_rank: usize,
    /// GPUs that do the same at the same time.
    pub num_gpus: u32,
    /// Where its time goes.
    pub breakdown: Breakdown,
    /// Waiting for other pipeline ranks.
    pub idle_seconds: f64,
    /// Memory at its peak.
    pub peak_memory_bytes: u64,
}

/// Steps drawn at random.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JitterReport {
    /// How many.
    pub num_samples: usize,
    /// Their mean.
    pub mean_seconds: f64,
    /// What half of them do not exceed.
    pub p50_seconds: f64,
    /// What nine in ten do not exceed.
    pub p90_seconds: f64,
    /// What ninety-nine in a hundred do not exceed.
    pub p99_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
}

/// What a rank that is slower than planned does to all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StragglerReport {
    /// Which.
    pub rank: u32,
    /// How many times as long its passes take.
    pub factor: f64,
    /// In what time there are as many updates as replicas, where these do not wait for each other, once all
    /// have settled; else the time of a step, in which all wait for the slowest.
    pub step_time_seconds: f64,
    /// How old gradients are, in updates, in the mean, where replicas do not wait for each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_staleness: Option<f64>,
    /// How old the oldest are.
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
            jitter: None,
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

/// What the critical path consists of. Parts of an overlapped pair count for the time that they take the
/// path further.
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

/// Draws steps of a plan at random: each run of a pass or an update deviates from what is planned, and is
/// slowed by the slowest of the GPUs that exchange data within it. `observe` is called after each step.
///
/// # Errors
///
/// [`SimulateError`].
pub fn jittered(
    checked: &CheckedPlan,
    jitter: &Jitter,
    num_samples: u32,
    observe: &(dyn Fn() + Sync),
) -> Result<JitterReport, SimulateError> {
    let CheckedPlan { problem, found, .. } = checked;
    let layout = found.layout;
    let replicas = Replicas {
        gpus_per_rank: layout.tensor_parallel * layout.context_parallel,
        pipelines: layout.data_parallel,
    };
    with_step(problem, layout, &found.stage_ends, |step| {
        let steps =
            sample_steps(&step.schedule()?, &step.work, replicas, jitter, num_samples, observe)?;
        Ok(JitterReport::new(&steps))
    })
}

/// Plays a plan's step with one of its GPUs slower than planned; none where the plan has no such rank. Ranks that
/// exchange data within its passes go as slowly, and the step ends when the slowest replica does, unless replicas
/// do not wait for each other.
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

impl JitterReport {
    fn new(steps: &Distribution) -> Self {
        Self {
            num_samples: steps.times().len(),
            mean_seconds: seconds(steps.mean()),
            p50_seconds: seconds(steps.quantile(0.5)),
            p90_seconds: seconds(steps.quantile(0.9)),
            p99_seconds: seconds(steps.quantile(0.99)),
            max_seconds: seconds(steps.quantile(1.0)),
        }
    }
}
