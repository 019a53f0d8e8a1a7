//! Plans made from the result of a search.

use ir::cluster::Cluster;
use ir::plan::{PLAN_VERSION, Plan, PlannedModel, PlannedStage, Provenance, RunnerUp};
use sha2::{Digest, Sha256};

use crate::problem::Problem;
use crate::search::EvaluatedPlan;
use crate::step::PipelineRanks;

/// A plan with everything that it depends on.
pub fn make(
    problem: &Problem,
    cluster: &Cluster,
    model: PlannedModel,
    best: &EvaluatedPlan,
    runners_up: &[EvaluatedPlan],
    provenance: Provenance,
) -> Plan {
    let ranks = PipelineRanks::of(&best.layout);
    let starts = std::iter::once(0).chain(best.stage_ends.iter().copied());
    let counted = starts.zip(best.stage_blocks()).zip(0..);
    let stages = counted.map(|((start, num_blocks), stage)| PlannedStage {
        stage,
        pipeline_rank: ranks.first_with(stage as usize) as u32,
        first_block: start as u32,
        num_blocks,
    });
    Plan {
        version: PLAN_VERSION,
        model,
        training: problem.training,
        documents: problem.sequences.as_ref().map(|it| it.documents.clone()),
        expert_load: problem.expert_load.load.clone(),
        cluster: cluster.clone(),
        framework: problem.hardware.framework.clone(),
        num_gpus: problem.limits.num_gpus,
        hosts: cluster.hosts.clone(),
        headroom_bytes: problem.headroom(),
        layout: *best.layout,
        stages: stages.collect(),
        stages_by_hand: problem.stages.is_some(),
        prediction: best.prediction(problem),
        runners_up: runners_up
            .iter()
            .map(|found| RunnerUp {
                layout: *found.layout,
                stage_blocks: found.stage_blocks(),
                step_time_seconds: found.evaluation.step_time.get(),
                peak_memory_bytes: found.evaluation.memory.total(),
                breakdown: found.evaluation.breakdown,
            })
            .collect(),
        provenance,
    }
}

/// SHA-256 of a text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    format!("{:x}", Sha256::digest(text.as_bytes()))
}
