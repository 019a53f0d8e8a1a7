//! A layout with its stages, and the time and memory of its step.

use ir::expert_load::ExpertLoad;
use ir::graph::{DocumentSizes, RoutedTokens};
use ir::layout::Layout;
use ir::plan::Prediction;
use ir::units::{Bytes, Flops, Seconds};

use serde::Serialize;

use crate::problem::Problem;
use crate::step::{
    Assignment, ChainIndex, Evaluation, PipelineRanks, Shape, ShapeKey, Simulated, Step,
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

/// The tenth, the half and nine tenths of a distribution.
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
    /// Time of a step with as many tokens for each expert.
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
        if busiest == RoutedTokens::BALANCED.busiest && key.documents.is_none() {
            return problem.facts.has_experts.then(|| self.as_only_draw());
        }
        let of = |problem: &Problem| {
            with_step(problem, self.layout, &self.stage_ends, |step: &Step<'_>| step.evaluate())
                .unwrap_or_else(|error| panic!("a checked layout plays: {error}"))
        };
        let drawn = [0.1, 0.5, 0.9].map(|quantile| of(&problem.at_quantile(quantile)));
        // Kernels may be faster where they do a little more.
        let quantiles = |of: fn(&Evaluation) -> f64| {
            let mut drawn = [0, 1, 2].map(|index| of(&drawn[index]));
            drawn.sort_by(f64::total_cmp);
            let [p10, p50, p90] = drawn;
            Quantiles { p10, p50, p90 }
        };
        let balanced = problem.clone().with_expert_load(ExpertLoad::Balanced).ok()?;
        Some(OverDraws {
            documents: key.documents,
            step_time: quantiles(|it| it.step_time.get()),
            peak_memory: quantiles(|it| it.memory.total().as_f64()),
            busiest: busiest as f64 / RoutedTokens::BALANCED.busiest as f64,
            balanced: of(&balanced).step_time,
        })
    }
}

impl EvaluatedPlan {
    /// The same time and memory in all draws.
    fn as_only_draw(&self) -> OverDraws {
        let same = |value: f64| Quantiles { p10: value, p50: value, p90: value };
        OverDraws {
            step_time: same(self.evaluation.step_time.get()),
            peak_memory: same(self.evaluation.memory.total().as_f64()),
            busiest: 1.0,
            balanced: self.evaluation.step_time,
            documents: None,
        }
    }
}

/// Time and memory of a layout whose stages end at `stage_ends`, on a timeline.
///
/// # Panics
///
/// If the stages are not as many as the layout has, or do not cover the chain in order.
pub fn simulated(
    problem: &Problem,
    layout: Layout,
    stage_ends: &[usize],
) -> (EvaluatedPlan, Simulated) {
    let simulated = with_step(problem, layout, stage_ends, |step: &Step<'_>| step.simulate());
    let simulated = simulated.unwrap_or_else(|error| panic!("a checked layout plays: {error}"));
    let (stage_ends, evaluation) = (stage_ends.to_vec(), simulated.evaluation);
    (EvaluatedPlan { layout, stage_ends, evaluation }, simulated)
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
    let shape = Shape::new(problem, &chain, ShapeKey::of(&layout, problem));
    let ranks = PipelineRanks::of(&layout);
    let assignment =
        Assignment::new(problem, &chain, &shape, layout.recompute, ranks, stage_ends.into());
    of(&Step::new(&assignment, layout))
}

/// Throughput of a step: tokens per second on each GPU, or samples for models without a sequence.
pub fn tokens_per_second_per_gpu(problem: &Problem, step_time: Seconds) -> f64 {
    let training = &problem.training;
    // Models without a sequence are counted by the sample.
    let length = if problem.limits.has_sequence { training.sequence_length } else { 1 };
    let tokens = length as f64 * training.global_batch_size as f64 * problem.real_share();
    tokens / step_time.get() / f64::from(problem.limits.num_gpus)
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
