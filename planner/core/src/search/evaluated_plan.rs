//! A layout with its stages, and the time and memory of its step.

use ir::expert_load::ExpertLoad;
use ir::graph::{DocumentSizes, RoutedTokens};
use ir::layout::Layout;
use ir::plan::{Breakdown, Prediction};
use ir::units::{Bytes, Flops, Seconds};

use serde::Serialize;

use crate::problem::Problem;
use crate::step::{
    Assignment, ChainIndex, Evaluation, PipelineRanks, Shape, ShapeKey, SimulateError, Simulated,
    Step, title,
};

/// A layout with its stages, time and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluatedPlan {
    /// The layout.
    pub layout: Layout,
    /// End of each stage, in blocks of the chain. [`PipelineRanks::of`] the layout gives the pipeline ranks of a stage.
    pub stage_ends: Vec<usize>,
    /// Time and memory.
    pub evaluation: Evaluation,
}

impl EvaluatedPlan {
    /// Bytes by which the fullest rank exceeds `memory`.
    pub fn excess(&self, memory: Bytes) -> Bytes {
        self.evaluation.memory.total().saturating_sub(memory)
    }

    /// Blocks of each stage.
    pub fn stage_blocks(&self) -> Vec<u32> {
        let starts = std::iter::once(0).chain(self.stage_ends.iter().copied());
        starts.zip(&self.stage_ends).map(|(start, end)| (end - start) as u32).collect()
    }

    /// The prediction in the form of a plan file.
    pub fn prediction(&self, problem: &Problem) -> Prediction {
        let step_time = self.evaluation.step_time;
        Prediction {
            step_time_seconds: step_time.get(),
            tokens_per_second_per_gpu: tokens_per_second_per_gpu(problem, step_time),
            mfu: model_flops_utilization(problem, step_time),
            peak_memory_bytes: self.evaluation.memory.total(),
            breakdown: self.evaluation.breakdown,
            memory: self.evaluation.memory,
        }
    }
}

/// Quantiles of a distribution, at a tenth, a half and nine tenths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Exceeded by nine of ten.
    pub p10: f64,
    /// Exceeded by half.
    pub p50: f64,
    /// Exceeded by one of ten.
    pub p90: f64,
}

/// Time and memory of a plan over random loads of its experts and random documents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverDraws {
    /// Time of a step, in seconds.
    pub step_time: Quantiles,
    /// Memory of the fullest rank, in bytes.
    pub peak_memory: Quantiles,
    /// Tokens of the busiest rank over those of the average rank.
    pub busiest: f64,
    /// Time of a step with equally many tokens for each expert.
    pub balanced: Seconds,
    /// Documents of the replica that all others wait for.
    pub documents: Option<DocumentSizes>,
}

impl EvaluatedPlan {
    /// Time and memory over random loads of experts and documents; `None` for a model without experts whose sequences
    /// are documents.
    pub fn over_draws(&self, problem: &Problem) -> Option<OverDraws> {
        let key = ShapeKey::of(&self.layout, problem);
        let routed = problem.graph.classes().map(|(class, _)| key.setting(problem, class.0).routed);
        let busiest = routed.map(|it| it.busiest).max()?;
        let are_same = busiest == RoutedTokens::BALANCED.busiest && key.documents.is_none();
        if are_same && !problem.facts.has_experts {
            return None;
        }
        let of = |problem: &Problem| {
            evaluated(problem, self.layout, &self.stage_ends)
                .unwrap_or_else(|error| panic!("a checked layout plays: {error}"))
        };
        let (drawn, balanced) = if are_same {
            ([self.evaluation; 3], self.evaluation)
        } else {
            let balanced = problem.clone().with_expert_load(ExpertLoad::Balanced).ok()?;
            ([0.1, 0.5, 0.9].map(|quantile| of(&problem.at_quantile(quantile))), of(&balanced))
        };
        // Sorted, as kernels may be faster where they do a little more work.
        let quantiles = |of: fn(&Evaluation) -> f64| {
            let mut drawn = [0, 1, 2].map(|index| of(&drawn[index]));
            drawn.sort_by(f64::total_cmp);
            let [p10, p50, p90] = drawn;
            Quantiles { p10, p50, p90 }
        };
        Some(OverDraws {
            documents: key.documents,
            step_time: quantiles(|it| it.step_time.get()),
            peak_memory: quantiles(|it| it.memory.total().as_f64()),
            busiest: busiest as f64 / RoutedTokens::BALANCED.busiest as f64,
            balanced: balanced.step_time,
        })
    }
}

/// Time and memory of a layout whose stages end at `stage_ends`, on a timeline.
///
/// # Panics
///
/// If the number of stages is not the layout's, or the stages do not cover the chain in order.
pub fn simulated(
    problem: &Problem,
    layout: Layout,
    stage_ends: &[usize],
) -> (EvaluatedPlan, Simulated) {
    let of = |problem: &Problem, layout| {
        let simulated = with_step(problem, layout, stage_ends, |step: &Step<'_>| step.simulate());
        simulated.unwrap_or_else(|error| panic!("a checked layout plays: {error}"))
    };
    let simulated = if layout.micro_batches_by_group.is_empty() {
        of(problem, layout)
    } else {
        let groups = 0..problem.num_groups();
        let all = groups.map(|group| of(&problem.of_group(group), layout.of_group(group)));
        joined(problem, layout, all.collect())
    };
    let (stage_ends, evaluation) = (stage_ends.to_vec(), simulated.evaluation);
    (EvaluatedPlan { layout, stage_ends, evaluation }, simulated)
}

/// Time and memory of a layout whose stages end at `stage_ends`.
///
/// # Errors
///
/// [`SimulateError`]; never for a checked layout.
///
/// # Panics
///
/// As [`simulated`].
pub fn evaluated(
    problem: &Problem,
    layout: Layout,
    stage_ends: &[usize],
) -> Result<Evaluation, SimulateError> {
    let all = on_groups(problem, layout, stage_ends, |step: &Step<'_>| step.evaluate());
    let all: Vec<Evaluation> = all.into_iter().collect::<Result<_, _>>()?;
    Ok(of_groups(problem, layout, &all))
}

/// Results of `of` on the step of a layout, or on those of the replicas in each group.
///
/// # Panics
///
/// As [`simulated`].
pub fn on_groups<T>(
    problem: &Problem,
    layout: Layout,
    stage_ends: &[usize],
    of: impl Fn(&Step<'_>) -> T,
) -> Vec<T> {
    if layout.micro_batches_by_group.is_empty() {
        return vec![with_step(problem, layout, stage_ends, of)];
    }
    let of_group =
        |group| with_step(&problem.of_group(group), layout.of_group(group), stage_ends, &of);
    (0..problem.num_groups()).map(of_group).collect()
}

/// Time and memory of a step whose replicas lie in groups, from the evaluations of the replicas in each group, or from
/// the only one, of all replicas. The step takes as long as that of the slowest group, for which the other groups wait
/// with their gradients.
///
/// # Assumes
///
/// Replicas exchange their gradients once a step, or have equal shares; then reductions in the order of buckets end
/// when the reductions of the last group end, as in any (max, +) linear system.
pub(super) fn of_groups(problem: &Problem, layout: Layout, all: &[Evaluation]) -> Evaluation {
    if let [only] = all {
        return *only;
    }
    let times = all.iter().map(|evaluation| evaluation.step_time);
    let step_time = times.max_by(|a, b| a.get().total_cmp(&b.get())).unwrap_or_default();
    let left = |(group, evaluation): &(usize, &Evaluation)| {
        let capacity = problem.hardware_of(*group).memory.get();
        i128::from(capacity) - i128::from(evaluation.memory.total().get())
    };
    let fullest = all.iter().enumerate().min_by_key(left);
    let (group, Evaluation { memory, fullest_rank, .. }) = fullest.expect("there are groups");
    let waiting = all.iter().map(|it| it.breakdown.waiting_until(step_time));
    let waiting = waiting.zip(problem.limits.gpus_by_group.iter().copied());
    Evaluation {
        step_time,
        breakdown: Breakdown::mean(&waiting.collect::<Vec<_>>()),
        memory: *memory,
        fullest_rank: group * layout.pipeline_parallel as usize + fullest_rank,
    }
}

/// The steps of the replicas in each group, joined into one: its timeline has the pipeline ranks of the first group,
/// then those of the next.
fn joined(problem: &Problem, layout: Layout, all: Vec<Simulated>) -> Simulated {
    let evaluations: Vec<Evaluation> = all.iter().map(|it| it.evaluation).collect();
    let evaluation = of_groups(problem, layout, &evaluations);
    let is_slowest = |it: &Evaluation| it.step_time == evaluation.step_time;
    let slowest = evaluations.iter().position(is_slowest).unwrap_or_default();
    let first_rank = (slowest as u32) * layout.pipeline_parallel;
    let mut joined: Option<Simulated> = None;
    for (group, mut next) in all.into_iter().enumerate() {
        for breakdown in &mut next.breakdown_by_rank {
            *breakdown = breakdown.waiting_until(evaluation.step_time);
        }
        let before = problem.limits.gpus_by_group[..group].iter().sum::<u32>();
        for track in &mut next.simulation.timeline.tracks {
            track.rank += before;
            track.name =
                format!("{} on {}", track.name, problem.name_of(group).unwrap_or_default());
        }
        let Some(joined) = &mut joined else {
            joined = Some(next);
            continue;
        };
        if group == slowest {
            joined.simulation.critical_path = std::mem::take(&mut next.simulation.critical_path);
            joined.simulation.timeline.remark =
                std::mem::take(&mut next.simulation.timeline.remark);
        }
        joined.simulation.timeline.tracks.append(&mut next.simulation.timeline.tracks);
        joined.simulation.ranks.append(&mut next.simulation.ranks);
        joined.breakdown_by_rank.append(&mut next.breakdown_by_rank);
        joined.memory_by_rank.append(&mut next.memory_by_rank);
    }
    let mut joined = joined.expect("there are groups");
    for step in &mut joined.simulation.critical_path {
        step.rank += first_rank;
    }
    joined.simulation.timeline.title = title(problem.limits.num_gpus, &layout);
    Simulated { evaluation, ..joined }
}

/// The result of `of` on the step of a layout whose stages end at `stage_ends`.
///
/// # Panics
///
/// As [`simulated`].
pub fn with_step<T>(
    problem: &Problem,
    layout: Layout,
    stage_ends: &[usize],
    of: impl FnOnce(&Step<'_>) -> T,
) -> T {
    let chain = ChainIndex::new(problem);
    assert_eq!(stage_ends.len(), layout.num_stages() as usize, "each stage has an end");
    let by_group = layout.micro_batches_by_group;
    assert!(by_group.is_empty(), "replicas of unlike groups have steps of their own");
    let shape = Shape::new(problem, &chain, ShapeKey::of(&layout, problem));
    let ranks = PipelineRanks::of(&layout);
    let assignment =
        Assignment::new(problem, &chain, &shape, layout.recompute, ranks, stage_ends.into());
    of(&Step::new(&assignment, layout))
}

/// Tokens of a step without padding, or samples for models without a sequence.
pub fn tokens_per_step(problem: &Problem) -> f64 {
    let training = &problem.training;
    let length = if problem.limits.has_sequence { training.sequence_length } else { 1 };
    length as f64 * training.global_batch_size as f64 * problem.real_share()
}

/// Throughput of a step: tokens per second on each GPU, or samples for models without a sequence.
pub fn tokens_per_second_per_gpu(problem: &Problem, step_time: Seconds) -> f64 {
    tokens_per_step(problem) / step_time.get() / f64::from(problem.limits.num_gpus)
}

/// MFU: model FLOPs of a step over the peak of all GPUs by their data sheet. Query-key pairs hidden by a causal mask
/// are not counted: long sequences would exceed the peak.
///
/// # Source
///
/// Chowdhery et al. 2022, *PaLM* (arXiv 2204.02311), appendix B, which counts every pair:
/// [`utilization_with_every_pair`].
pub fn model_flops_utilization(problem: &Problem, step_time: Seconds) -> f64 {
    utilization(problem, problem.model_flops, step_time)
}

/// MFU with every query-key pair of a causal mask counted, as Megatron-LM and PaLM do.
pub fn utilization_with_every_pair(problem: &Problem, step_time: Seconds) -> f64 {
    utilization(problem, problem.model_flops_with_every_pair, step_time)
}

fn utilization(problem: &Problem, flops: Flops, step_time: Seconds) -> f64 {
    (flops / step_time) / problem.peak_of_all()
}
