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
        hosts: {
            let nodes = cluster.num_nodes(problem.limits.num_gpus) as usize;
            cluster.hosts.iter().take(nodes).cloned().collect()
        },
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
    if problem.groups.is_none() {
        return Vec::new();
    }
    let layout = &found.layout;
    let (chain, ranks) = (ChainIndex::new(problem), PipelineRanks::of(&found.layout));
    let num_stages = found.stage_ends.len();
    let layers = |stage: usize| {
        let start = stage.checked_sub(1).map_or(0, |before| found.stage_ends[before]);
        chain.num_layers(&(start..found.stage_ends[stage]))
    };
    let p = layout.pipeline_parallel as usize;
    let planned = |rank: usize, group: usize, replica, share_of_batch| PlannedRank {
        pipeline_rank: rank as u32,
        replica,
        group: problem.name_of(group).unwrap_or_default().to_owned(),
        layers: ranks.stages(rank, num_stages).map(layers).sum(),
        share_of_batch,
    };
    let by_group = layout.micro_batches_by_group.numbers();
    if by_group.is_empty() {
        let groups = problem.groups_of_ranks(layout).into_iter().enumerate();
        return groups.map(|(rank, group)| planned(rank, group, None, 1.0)).collect();
    }
    let of_groups = problem.replicas_of_groups(layout.gpus_per_replica());
    let groups = of_groups.into_iter().enumerate();
    let replicas = groups.flat_map(|(group, number)| std::iter::repeat_n(group, number as usize));
    let of_replica = |(replica, group): (usize, usize)| {
        let sequences = f64::from(by_group[group] * layout.micro_batch_size);
        let share = sequences / problem.training.global_batch_size as f64;
        (0..p).map(move |rank| planned(rank, group, Some(replica as u32), share))
    };
    replicas.enumerate().flat_map(of_replica).collect()
}

/// Provenance of a plan that a command makes from a model's text and a cluster.
pub fn provenance(command: String, model_text: &str, cluster: &Cluster) -> Provenance {
    Provenance {
        planner_version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        model_sha256: sha256(model_text),
        cluster_sha256: sha256_of(cluster),
    }
}

/// SHA-256 of a cluster's JSON.
pub(super) fn sha256_of(cluster: &Cluster) -> String {
    sha256(&serde_json::to_string(cluster).unwrap_or_default())
}

/// SHA-256 of a text, in hexadecimal.
fn sha256(text: &str) -> String {
    format!("{:x}", Sha256::digest(text.as_bytes()))
}
