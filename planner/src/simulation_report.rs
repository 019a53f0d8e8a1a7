//! What `planner simulate` says of a step.

use std::collections::BTreeMap;

use ir::schedule::{Action, ActionKind, GenerateError, Schedule, Step, Updates};
use ir::units::{Nanos, Seconds};
use serde::Serialize;
use simulator::{
    CriticalStep, Distribution, Jitter, Planned, RankTimes, Replicas, Simulation, sample_steps,
};
use traces::timeline::{Activity, Stream, Timeline, Track};

use crate::plan_file::CheckedPlan;
use crate::program::program;

/// A step, rank by rank. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationReport {
    /// The plan in words.
    pub title: String,
    /// From the start of the step to its end.
    pub step_time_seconds: f64,
    /// The share of time in which ranks neither compute nor wait for their own collectives.
    pub idle_fraction: f64,
    /// By pipeline rank.
    pub ranks: Vec<RankReport>,
    /// What the end of the step waited for, from its start on, by what was done.
    pub critical_path: BTreeMap<&'static str, f64>,
    /// Steps drawn at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterReport>,
}

/// How a pipeline rank spends the step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankReport {
    /// Which.
    pub pipeline_rank: usize,
    /// GPUs that do the same at the same time.
    pub num_gpus: u32,
    /// Kernels of micro-batches.
    pub compute_seconds: f64,
    /// Kernels of updates.
    pub update_seconds: f64,
    /// Waiting for its own transfers, by stream.
    pub waited_seconds: BTreeMap<&'static str, f64>,
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

impl SimulationReport {
    /// The report of a plan's step.
    pub fn new(checked: &CheckedPlan) -> Self {
        let Simulation { timeline, critical_path, ranks } = &checked.simulation;
        let end = timeline.end();
        let ranks: Vec<RankReport> = ranks
            .iter()
            .zip(&timeline.tracks)
            .enumerate()
            .map(|(rank, (times, track))| RankReport::new(rank, times, track, end))
            .collect();
        let gpus: f64 = ranks.iter().map(|rank| f64::from(rank.num_gpus)).sum();
        let idle: f64 = ranks.iter().map(|rank| rank.idle_seconds * f64::from(rank.num_gpus)).sum();
        let step_time_seconds = seconds(end);
        Self {
            title: timeline.title.clone(),
            step_time_seconds,
            idle_fraction: idle / (gpus * step_time_seconds).max(f64::MIN_POSITIVE),
            ranks,
            critical_path: composition(critical_path),
            jitter: None,
        }
    }
}

impl RankReport {
    fn new(pipeline_rank: usize, times: &RankTimes, track: &Track, end: Nanos) -> Self {
        let waited = Stream::ALL.iter().zip(times.waited).filter(|(_, time)| *time > Nanos::ZERO);
        let spent = times.compute + times.update + times.waited.iter().copied().sum();
        Self {
            pipeline_rank,
            num_gpus: track.num_ranks,
            compute_seconds: seconds(times.compute),
            update_seconds: seconds(times.update),
            waited_seconds: waited.map(|(stream, time)| (stream.name(), seconds(time))).collect(),
            idle_seconds: seconds(end.saturating_sub(spent)),
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
            Activity::Collective { .. } => "collectives",
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
        if step.activity.kind().is_some_and(ActionKind::is_compute) {
            let kernels = time.min(step.compute);
            *parts.entry(name).or_default() += kernels;
            *parts.entry("collectives within passes").or_default() += time - kernels;
        } else {
            *parts.entry(name).or_default() += time;
        }
    }
    parts.retain(|_, time| *time > Nanos::ZERO);
    parts.into_iter().map(|(name, time)| (name, seconds(time))).collect()
}

/// Draws steps of a plan at random. Passes and messages take as long as on the plan's timeline, each by
/// itself; a pass deviates from that, and is slowed by the slowest of the GPUs that exchange data within
/// it. What follows the last pass (reductions, the update) takes as long as planned. Where each micro-batch
/// is followed by an update, updates deviate as passes do.
///
/// # Errors
///
/// As [`program`].
pub fn jittered(
    checked: &CheckedPlan,
    jitter: &Jitter,
    num_samples: u32,
) -> Result<JitterReport, GenerateError> {
    let schedule = program(&checked.problem, &checked.found)?.schedule;
    let timeline = &checked.simulation.timeline;
    let passes = Passes::new(timeline, &schedule);
    let planned = Planned {
        schedule: &schedule,
        duration: |action| passes.duration(action),
        delay: |action| passes.delay(action),
        tail: timeline.end() - passes.end,
    };
    let layout = &checked.found.layout;
    let replicas = Replicas {
        gpus_per_rank: layout.tensor_parallel * layout.context_parallel,
        pipelines: layout.data_parallel,
    };
    Ok(JitterReport::new(&sample_steps(&planned, replicas, jitter, num_samples)))
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

/// How long the passes and messages of a timeline take. They are not all alike: the first pass of a stage
/// may wait for parameters, and the last messages share links with reductions.
struct Passes {
    num_micro_batches: usize,
    /// By stage, kind of pass and micro-batch.
    durations: Vec<Nanos>,
    /// By stage: an update in the midst of the pipeline, in the mean.
    updates: Vec<Nanos>,
    /// When the result of a pass is there, and when it is on the neighbouring stage's rank; by stage,
    /// direction and micro-batch.
    results: Vec<[Nanos; 2]>,
    /// When the last pass is over.
    end: Nanos,
}

/// Forward, backward and its two parts.
const NUM_PASSES: usize = 4;

impl Passes {
    fn new(timeline: &Timeline, schedule: &Schedule) -> Self {
        let num_micro_batches = schedule.num_micro_batches() as usize;
        let num_stages = schedule.num_stages() as usize;
        let num_forwards = num_stages * num_micro_batches;
        let mut passes = Self {
            num_micro_batches,
            durations: vec![Nanos::ZERO; num_forwards * NUM_PASSES],
            updates: vec![Nanos::ZERO; num_stages],
            results: vec![[Nanos::ZERO; 2]; num_forwards * 2],
            end: Nanos::ZERO,
        };
        let updates_each = schedule.updates() == Updates::AfterEachMicroBatch;
        for event in timeline.tracks.iter().flat_map(|track| &track.events) {
            let Activity::Action(action) = event.activity else { continue };
            match action.kind {
                kind if kind.is_compute() => passes.add(action, event.start, event.end),
                ActionKind::OptimizerStep if updates_each => {
                    passes.updates[action.stage as usize] += event.duration();
                    passes.end = passes.end.max(event.end);
                }
                ActionKind::SendForward | ActionKind::SendBackward => {
                    let is_backward = action.kind == ActionKind::SendBackward;
                    let result = passes.result(action.stage, action.micro_batch, is_backward);
                    passes.results[result][1] = event.end;
                }
                _ => {}
            }
        }
        for update in &mut passes.updates {
            *update = Nanos::new(update.get() / num_micro_batches.max(1) as u64);
        }
        passes.part_pairs(timeline, schedule);
        passes
    }

    fn add(&mut self, action: Action, start: Nanos, end: Nanos) {
        let pass = self.pass(action);
        self.durations[pass] = end - start;
        self.end = self.end.max(end);
        if action.kind != ActionKind::WeightGrad {
            let is_backward = action.kind != ActionKind::Forward;
            let result = self.result(action.stage, action.micro_batch, is_backward);
            self.results[result][0] = end;
        }
    }

    /// Parts the time of overlapped pairs, which are drawn as if one action followed the other: the first
    /// has the time until one of them was over.
    fn part_pairs(&mut self, timeline: &Timeline, schedule: &Schedule) {
        for (steps, track) in schedule.ranks().iter().zip(&timeline.tracks) {
            let mut events: BTreeMap<Action, (Nanos, Nanos)> = BTreeMap::new();
            for event in &track.events {
                if let Activity::Action(action) = event.activity {
                    events.insert(action, (event.start, event.end));
                }
            }
            for step in steps {
                let Step::Overlapped(first, second) = *step else { continue };
                let (Some(one), Some(other)) = (events.get(&first), events.get(&second)) else {
                    continue;
                };
                let middle = one.1.min(other.1);
                self.add(first, one.0.min(other.0), middle);
                self.add(second, middle, one.1.max(other.1));
            }
        }
    }

    /// The time of an action on its rank; none for what neither computes nor updates in between.
    fn duration(&self, action: Action) -> Nanos {
        match action.kind {
            kind if kind.is_compute() => self.durations[self.pass(action)],
            ActionKind::OptimizerStep => self.updates[action.stage as usize],
            _ => Nanos::ZERO,
        }
    }

    /// How long what `action` needs takes to come from another rank.
    fn delay(&self, action: Action) -> Nanos {
        let is_backward = action.kind != ActionKind::Forward;
        let from = if is_backward { action.stage + 1 } else { action.stage - 1 };
        let [there, here] = self.results[self.result(from, action.micro_batch, is_backward)];
        // Of a pair, the second action may be over before the first, and its result on its way.
        here.saturating_sub(there)
    }

    fn pass(&self, action: Action) -> usize {
        let pass = action.stage as usize * NUM_PASSES + action.kind as usize;
        pass * self.num_micro_batches + action.micro_batch as usize
    }

    fn result(&self, stage: u32, micro_batch: u32, is_backward: bool) -> usize {
        let direction = stage as usize * 2 + usize::from(is_backward);
        direction * self.num_micro_batches + micro_batch as usize
    }
}
