//! Plans made from the result of a search.

use ir::cluster::Cluster;
use ir::plan::{PLAN_VERSION, Plan, PlannedModel, PlannedRank, PlannedStage, Provenance, RunnerUp};
use sha2::{Digest, Sha256};

use crate::problem::Problem;
use crate::search::EvaluatedPlan;
use crate::step::{ChainIndex, PipelineRanks};

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
        ranks: planned_ranks(problem, best),
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

/// Pipeline ranks of a plan with their groups; empty where GPUs are alike.
pub fn planned_ranks(problem: &Problem, found: &EvaluatedPlan) -> Vec<PlannedRank> {
    let Some(groups) = problem.groups_of_ranks(&found.layout) else { return Vec::new() };
    let (chain, ranks) = (ChainIndex::new(problem), PipelineRanks::of(&found.layout));
    let num_stages = found.stage_ends.len();
    let layers = |stage: usize| {
        let start = stage.checked_sub(1).map_or(0, |before| found.stage_ends[before]);
        chain.num_layers(&(start..found.stage_ends[stage]))
    };
    let rank = |(rank, group): (usize, String)| PlannedRank {
        pipeline_rank: rank as u32,
        group,
        layers: ranks.stages(rank, num_stages).map(layers).sum(),
        share_of_batch: 1.0,
    };
    groups.into_iter().enumerate().map(rank).collect()
}

/// SHA-256 of a text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    format!("{:x}", Sha256::digest(text.as_bytes()))
}
