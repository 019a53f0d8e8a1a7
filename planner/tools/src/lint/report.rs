//! All that is said of settings.

use cost_models::residuals::{SHARE, Spread, SpreadOf};
use ir::layout::LayoutSpec;
use ir::plan::Training;
use ir::units::Bytes;
use serde::Serialize;

use super::evaluated::EvaluatedConfig;
use super::finding::Finding;
use super::nearest::Nearby;
use super::rule::Severity;
use planner_core::search::{model_flops_utilization, simulated, tokens_per_second_per_gpu};

/// What is said of settings, for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The model.
    pub model: String,
    /// The cluster.
    pub cluster: String,
    /// The tool whose settings they are.
    pub tool: String,
    /// What was found, the most severe first.
    pub findings: Vec<Finding>,
    /// What is predicted, errors put right; absent where one of them could not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Predicted>,
    /// Better settings near these.
    pub nearest: Vec<Nearby>,
}

impl Report {
    /// Leaves out lines and replacements, where they are of another text than the user's file.
    pub fn forget_places(&mut self) {
        let places = self.findings.iter_mut().flat_map(|it| &mut it.options);
        places.for_each(|place| place.line = None);
        let fixes = self.findings.iter_mut().filter_map(|it| it.fix.as_mut());
        let fixes = fixes.chain(self.nearest.iter_mut().map(|it| &mut it.fix));
        fixes.for_each(|fix| fix.replacements.clear());
    }
}

/// What is predicted of settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Whether errors had to be put right first.
    pub with_errors_fixed: bool,
    /// GPUs.
    pub num_gpus: u32,
    /// The layout.
    pub layout: LayoutSpec,
    /// How it is trained.
    pub training: Training,
    /// Time of a step.
    pub step_time_seconds: f64,
    /// The interval that holds this share of steps.
    pub interval_seconds: [f64; 2],
    /// The share.
    pub interval_share: f64,
    /// Throughput.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOPs over the peak's.
    pub mfu: f64,
    /// Memory of the fullest GPU.
    pub peak_memory_bytes: Bytes,
    /// What a GPU has.
    pub memory_bytes: Bytes,
    /// Whether it fits.
    pub fits: bool,
    /// Time and memory of each pipeline rank.
    pub ranks: Vec<RankPrediction>,
}

/// What is predicted of a pipeline rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankPrediction {
    /// Its place in the pipeline.
    pub pipeline_rank: usize,
    /// Blocks of its stages, embedding and head counted.
    pub num_blocks: u32,
    /// How long it is at work in a step, waiting for the others left out.
    pub busy_seconds: f64,
    /// How long it waits for others.
    pub bubble_seconds: f64,
    /// Its memory at its peak.
    pub peak_memory_bytes: Bytes,
}

impl Report {
    /// How many findings are as severe, or more so.
    pub fn count(&self, at_least: Severity) -> usize {
        self.findings.iter().filter(|it| it.severity >= at_least).count()
    }
}

impl Predicted {
    pub(super) fn of(case: &EvaluatedConfig, with_errors_fixed: bool) -> Self {
        let EvaluatedConfig { problem, found, .. } = case;
        let (_, simulated) = simulated(problem, found.layout, &found.stage_ends);
        let (_, Spread { low, high, .. }) =
            Spread::shipped(SpreadOf::StepTimeSeconds, &problem.hardware);
        let step = found.evaluation.step_time;
        let ranks = planner_core::step::PipelineRanks::of(&found.layout);
        let blocks = case.blocks();
        let of_rank = |(rank, breakdown): (usize, &ir::plan::Breakdown)| {
            let stages = blocks.iter().enumerate();
            let own = stages.filter(|(stage, _)| ranks.first_with(*stage) == rank);
            let bubble = breakdown.pipeline_bubble_seconds;
            RankPrediction {
                pipeline_rank: rank,
                num_blocks: own.map(|(_, count)| count).sum(),
                busy_seconds: breakdown.total() - bubble,
                bubble_seconds: bubble,
                peak_memory_bytes: simulated.memory_by_rank[rank].total(),
            }
        };
        Self {
            with_errors_fixed,
            num_gpus: problem.limits.num_gpus,
            layout: *found.layout,
            training: problem.training,
            step_time_seconds: step.get(),
            interval_seconds: [low, high].map(|it| it * step.get()),
            interval_share: SHARE,
            tokens_per_second_per_gpu: tokens_per_second_per_gpu(problem, step),
            mfu: model_flops_utilization(problem, step),
            peak_memory_bytes: case.peak(),
            memory_bytes: problem.hardware.memory,
            fits: case.fits(),
            ranks: simulated.breakdown_by_rank.iter().enumerate().map(of_rank).collect(),
        }
    }
}
