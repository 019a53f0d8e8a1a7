//! Assignment of a plan's parts to GPUs, if these are of several kinds.

use ir::plan::PlannedRank;
use planner_core::plan::planned_ranks;
use planner_core::problem::Problem;
use planner_core::search::EvaluatedPlan;

/// Number of layers of the pipeline ranks, or batch of the replicas, by the kind of GPU that they are on; empty if all
/// GPUs are of one kind.
pub(crate) fn describe_ranks(problem: &Problem, best: &EvaluatedPlan) -> String {
    let ranks = planned_ranks(problem, best);
    let of_ranks = |ranks: &[PlannedRank]| {
        let layers = ranks.iter().map(|rank| rank.layers.to_string());
        format!("{} {}", ranks[0].group, layers.collect::<Vec<_>>().join(" "))
    };
    let of_replicas = |ranks: &[PlannedRank]| {
        let replicas = ranks.iter().filter(|rank| rank.pipeline_rank == 0).count();
        let sequences = ranks[0].share_of_batch * problem.training.global_batch_size as f64;
        format!("{} {replicas} x {sequences:.0}", ranks[0].group)
    };
    let by_group = !best.layout.micro_batches_by_group.is_empty();
    let groups = ranks.chunk_by(|a, b| a.group == b.group);
    let groups: Vec<String> =
        groups.map(|ranks| if by_group { of_replicas(ranks) } else { of_ranks(ranks) }).collect();
    if groups.is_empty() {
        return String::new();
    }
    let what =
        if by_group { "replicas and sequences of each" } else { "layers of each pipeline rank" };
    format!("{what}: {}\n", groups.join("; "))
}

/// The fullest pipeline rank in words, with its group if replicas are in groups.
pub(crate) fn fullest_rank(problem: &Problem, found: &EvaluatedPlan) -> String {
    let (rank, layout) = (found.evaluation.fullest_rank, &found.layout);
    let p = layout.pipeline_parallel as usize;
    match problem.name_of(problem.groups_of_ranks(layout)[rank]) {
        Some(group) if !layout.micro_batches_by_group.is_empty() => {
            format!("pipeline rank {} of replicas on {group}", rank % p)
        }
        _ => format!("pipeline rank {rank}"),
    }
}
