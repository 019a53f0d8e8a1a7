//! Properties of every plan that was found.

use ir::cluster::Cluster;
use ir::layout::Layout;
use ir::plan::{Plan, PlannedModel};
use planner_core::plan;
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, Go, Request, search, simulated, with_step};
use planner_core::step::Simulated;
use proptest::prelude::*;
use serde_json::Value;
use traces::timeline::Track;

pub(crate) fn check_found(problem: &Problem, found: &EvaluatedPlan) -> Result<(), TestCaseError> {
    let layout = &found.layout;
    prop_assert_eq!(Layout::new(**layout, &problem.limits), Ok(*layout));
    prop_assert_eq!(layout.num_gpus(), problem.limits.num_gpus);
    let by_group = layout.micro_batches_by_group;
    let replicas = problem.replicas_of_groups(layout.gpus_per_replica());
    let micro_batches = match by_group.numbers() {
        [] => layout.data_parallel * layout.num_micro_batches,
        numbers => numbers.iter().zip(replicas).map(|(number, of)| number * of).sum(),
    };
    let batch = micro_batches * layout.micro_batch_size;
    prop_assert_eq!(u64::from(batch), problem.limits.global_batch_size);

    let chunks = (layout.pipeline_parallel * layout.virtual_stages) as usize;
    prop_assert_eq!(found.stage_ends.len(), chunks);
    prop_assert!(found.stage_ends.is_sorted_by(|a, b| a < b), "{:?}", found.stage_ends);
    prop_assert_eq!(found.stage_ends.last(), Some(&problem.graph.num_blocks()));
    prop_assert_eq!(&simulated(problem, *layout, &found.stage_ends).0, found);

    let evaluation = &found.evaluation;
    let step_time = evaluation.step_time.get();
    prop_assert!(step_time.is_finite() && step_time > 0.0);
    let sum = evaluation.breakdown.total();
    prop_assert!((sum / step_time - 1.0).abs() < 1e-9, "{sum} of {step_time}");
    for (name, seconds) in evaluation.breakdown.parts() {
        prop_assert!(seconds >= -1e-9 * step_time, "{name}: {seconds}");
    }
    let prediction = found.prediction(problem);
    prop_assert_eq!(prediction.memory.total(), prediction.peak_memory_bytes);
    prop_assert!((0.0..1.0).contains(&prediction.mfu), "mfu {}", prediction.mfu);
    Ok(())
}

pub(crate) fn plans(problem: &Problem, request: &Request) -> Vec<EvaluatedPlan> {
    search(problem, request, &mut |_| Go::On).plans
}

/// Plans that a search finds with bounds as without, and that play as it says.
pub(crate) fn checked_plans(
    problem: &Problem,
    request: &Request,
) -> Result<Vec<EvaluatedPlan>, TestCaseError> {
    let pruned = plans(problem, request);
    prop_assert_eq!(&pruned, &plans(problem, &Request { exhaustive: true, ..*request }));
    for found in &pruned {
        check_found(problem, found)?;
        check_timeline(problem, found)?;
    }
    Ok(pruned)
}

/// The plan that a command would write of what a search found, the best of it first.
pub(crate) fn planned(
    problem: &Problem,
    cluster: &Cluster,
    (name, description): (&str, &Value),
    found: &[EvaluatedPlan],
) -> Plan {
    let model = PlannedModel {
        name: name.to_owned(),
        description: description.clone(),
        num_parameters: problem.parameters().total,
        multi_token_prediction: false,
        dropout: false,
        adapters: None,
    };
    let provenance = plan::provenance("planner".to_owned(), &description.to_string(), cluster);
    plan::make(problem, cluster, model, &found[0], &found[1..], provenance)
}

/// A layout played through: every rank's time adds up, the timeline shows the same step, bubble and memory,
/// and no bound is above it.
pub(crate) fn check_timeline(
    problem: &Problem,
    found: &EvaluatedPlan,
) -> Result<(), TestCaseError> {
    let (again, simulated) = simulated(problem, found.layout, &found.stage_ends);
    prop_assert_eq!(&again, found);
    let Simulated { evaluation, simulation, breakdown_by_rank, .. } = simulated;
    let step_time = evaluation.step_time.get();
    prop_assert!((simulation.timeline.end().as_f64() * 1e-9 - step_time).abs() < 1e-12);
    for breakdown in &breakdown_by_rank {
        let sum = breakdown.total();
        prop_assert!((sum / step_time - 1.0).abs() < 1e-9, "{sum} of {step_time}");
        for (name, seconds) in breakdown.parts() {
            prop_assert!(seconds >= 0.0, "{name}: {seconds}");
        }
    }
    // The step's breakdown is the mean over all GPUs.
    let gpus = |group: &usize| match problem.limits.gpus_by_group.get(*group) {
        Some(gpus) if !found.layout.micro_batches_by_group.is_empty() => *gpus,
        _ => problem.limits.num_gpus,
    };
    let p = f64::from(found.layout.pipeline_parallel * problem.limits.num_gpus);
    let ranks = problem.groups_of_ranks(&found.layout);
    let ranks = ranks.iter().map(gpus).zip(&breakdown_by_rank);
    let computing = ranks.map(|(gpus, rank)| f64::from(gpus) * rank.compute_seconds / p);
    let computing: f64 = computing.sum();
    prop_assert!((computing - evaluation.breakdown.compute_seconds).abs() < 1e-9 * step_time);
    // Replicas that lie in groups have steps of their own, and wait for each other.
    if found.layout.micro_batches_by_group.is_empty() {
        let bubble = evaluation.breakdown.pipeline_bubble_seconds / step_time;
        prop_assert!((bubble - simulation.timeline.bubble_fraction()).abs() < 1e-9);
        let bound = with_step(problem, found.layout, &found.stage_ends, |step| {
            step.assignment.lower_bound(&step.layout)
        });
        prop_assert!(bound <= simulation.timeline.end(), "{:?}", found.layout);
    }

    let tracks = &simulation.timeline.tracks;
    // Of unlike GPUs the one that has least left is shown.
    let peak = match problem.groups {
        None => tracks.iter().filter_map(Track::peak_memory).max(),
        Some(_) => tracks[evaluation.fullest_rank].peak_memory(),
    };
    prop_assert_eq!(peak, Some(evaluation.memory.total()));
    let ranks: u32 = tracks.iter().map(|track| track.num_ranks).sum();
    prop_assert_eq!(ranks, problem.limits.num_gpus);
    Ok(())
}
