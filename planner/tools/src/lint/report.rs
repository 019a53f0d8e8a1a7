//! Report of lint.

use cost_models::residuals::{SHARE, Spread, SpreadOf};
use ir::layout::LayoutSpec;
use ir::plan::Training;
use ir::units::Bytes;
use serde::Serialize;

use super::evaluated::EvaluatedConfig;
use super::finding::Finding;
use super::nearest::Nearby;
use super::rule::Severity;
use planner_core::search::{
    model_flops_utilization, on_groups, simulated, tokens_per_second_per_gpu,
};
use planner_core::step::Step;

/// Report on settings, which serializes as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LintReport {
    /// Name of the model.
    pub model: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the tool of the settings.
    pub tool: String,
    /// Findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Prediction with errors fixed; `None` if an error could not be fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<SettingsPrediction>,
    /// Faster settings near these.
    pub nearest: Vec<Nearby>,
}

impl LintReport {
    /// A report without findings.
    pub(super) fn new(model: &str, cluster: &str, tool: &str) -> Self {
        let [model, cluster, tool] = [model, cluster, tool].map(str::to_owned);
        let (findings, nearest) = (Vec::new(), Vec::new());
        Self { model, cluster, tool, findings, prediction: None, nearest }
    }

    /// Removes lines and replacements that refer to a text other than the user's file.
    pub fn forget_places(&mut self) {
        let places = self.findings.iter_mut().flat_map(|it| &mut it.options);
        places.for_each(|place| place.line = None);
        let fixes = self.findings.iter_mut().filter_map(|it| it.fix.as_mut());
        let fixes = fixes.chain(self.nearest.iter_mut().map(|it| &mut it.fix));
        fixes.for_each(|fix| fix.replacements.clear());
    }
}

/// Predicted time and memory of settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettingsPrediction {
    /// True if errors were fixed before the prediction.
    pub with_errors_fixed: bool,
    /// Number of GPUs.
    pub num_gpus: u32,
    /// The layout.
    pub layout: LayoutSpec,
    /// Training: batch, precision, optimizer.
    pub training: Training,
    /// Predicted step time.
    pub step_time_seconds: f64,
    /// Interval that holds `interval_share` of steps.
    pub interval_seconds: [f64; 2],
    /// Share of steps within the interval.
    pub interval_share: f64,
    /// Throughput of each GPU.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOPs utilization: model FLOP/s over peak FLOP/s.
    pub mfu: f64,
    /// Peak memory of the fullest GPU.
    pub peak_memory_bytes: Bytes,
    /// Memory of a GPU.
    pub memory_bytes: Bytes,
    /// True if peak memory is within the memory of GPU and host.
    pub fits: bool,
    /// Time and memory of each pipeline rank.
    pub ranks: Vec<RankPrediction>,
}

/// Predicted time and memory of a pipeline rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankPrediction {
    /// Index in the pipeline; if replicas are in groups of different kinds of GPUs, the index among the pipeline ranks
    /// of all groups.
    pub pipeline_rank: usize,
    /// The group of its GPUs, if GPUs are of several kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Number of blocks of its stages, including embedding and head.
    pub num_blocks: u32,
    /// Time in a step in which the rank does not wait.
    pub busy_seconds: f64,
    /// Time in a step in which the rank waits for other pipeline ranks, or for replicas on slower GPUs.
    pub bubble_seconds: f64,
    /// Peak memory.
    pub peak_memory_bytes: Bytes,
}

impl LintReport {
    /// Number of findings of a severity or above.
    pub fn count(&self, at_least: Severity) -> usize {
        self.findings.iter().filter(|it| it.severity >= at_least).count()
    }
}

impl SettingsPrediction {
    pub(super) fn of(case: &EvaluatedConfig, with_errors_fixed: bool) -> Self {
        let EvaluatedConfig { problem, found, .. } = case;
        let (_, simulated) = simulated(problem, found.layout, &found.stage_ends);
        let (_, spread) = Spread::shipped(SpreadOf::StepTimeSeconds, &problem.hardware);
        let interval = spread.interval(found.log_deviation(problem));
        let step = found.evaluation.step_time;
        let ranks = planner_core::step::PipelineRanks::of(&found.layout);
        let blocks = case.found.stage_blocks();
        let groups = problem.groups_of_ranks(&found.layout);
        let steps = on_groups(problem, found.layout, &found.stage_ends, |of_group: &Step<'_>| {
            of_group.evaluate().map_or(step, |it| it.step_time)
        });
        let of_rank = |(rank, breakdown): (usize, &ir::plan::Breakdown)| {
            let stages = blocks.iter().enumerate();
            // The replicas on each kind of GPU have all stages.
            let in_pipeline = rank % ranks.group.size as usize;
            let own = stages.filter(|(stage, _)| ranks.first_with(*stage) == in_pipeline);
            let group = groups[rank];
            // A pipeline that spans all groups has a single step time.
            let own_step = steps.get(group).copied().unwrap_or(step);
            let bubble = breakdown.pipeline_bubble_seconds + (step - own_step).get();
            RankPrediction {
                pipeline_rank: rank,
                group: problem.name_of(group).map(str::to_owned),
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
            interval_seconds: interval.map(|it| it * step.get()),
            interval_share: SHARE,
            tokens_per_second_per_gpu: tokens_per_second_per_gpu(problem, step),
            mfu: model_flops_utilization(problem, step),
            peak_memory_bytes: case.peak(),
            memory_bytes: case.of_fullest().hardware.memory,
            fits: case.fits(),
            ranks: simulated.breakdown_by_rank.iter().enumerate().map(of_rank).collect(),
        }
    }
}
