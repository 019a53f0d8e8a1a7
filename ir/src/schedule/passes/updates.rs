//! Actions on a whole stage: the reduction of its gradients, and its update.

use std::collections::BTreeMap;

use crate::schedule::{Action, ActionKind, Schedule, ScheduleStep, Updates};

/// Adds a reduction of the gradients of each stage over its replicas right after its last backward on the rank, while
/// other stages still work; after each backward in an asynchronous schedule.
pub fn add_reduction(schedule: &Schedule) -> Schedule {
    after_backwards(schedule, ActionKind::ReduceGrad, schedule.updates())
}

/// Adds an update of each stage. With a flush it is at the end of each rank's list, where a global gradient norm is
/// known; in an asynchronous schedule it follows each backward, and its reduction if there is one.
pub fn add_optimizer_steps(schedule: &Schedule) -> Schedule {
    if schedule.updates() == Updates::AfterEachMicroBatch {
        return after_backwards(schedule, ActionKind::OptimizerStep, schedule.updates());
    }
    let with_updates = |steps: &Vec<ScheduleStep>| {
        let mut stages: Vec<u32> = steps.iter().flat_map(stages_of).collect();
        stages.sort_unstable();
        stages.dedup();
        let updates = stages.into_iter().map(|stage| of_stage(stage, ActionKind::OptimizerStep));
        steps.iter().copied().chain(updates).collect()
    };
    rebuild(schedule, schedule.ranks().iter().map(with_updates).collect())
}

/// Adds an action after the last backward of each stage, or after each backward.
fn after_backwards(schedule: &Schedule, kind: ActionKind, updates: Updates) -> Schedule {
    let ends_backward =
        |action: &Action| matches!(action.kind, ActionKind::Backward | ActionKind::WeightGrad);
    let with_kind = |steps: &Vec<ScheduleStep>| {
        let mut left: BTreeMap<u32, u32> = BTreeMap::new();
        for action in steps.iter().flat_map(|step| step.actions()).filter(ends_backward) {
            *left.entry(action.stage).or_default() += 1;
        }
        let mut result = Vec::with_capacity(steps.len());
        let mut due: Vec<u32> = Vec::new();
        for step in steps {
            // A reduction precedes the update that uses it; messages also precede an update, which takes time, as other
            // ranks wait for them: among them the result of the backward.
            let goes_before =
                |action: Action| action.kind == ActionKind::ReduceGrad || action.kind.is_message();
            if !step.actions().any(goes_before) {
                result.extend(due.drain(..).map(|stage| of_stage(stage, kind)));
            }
            result.push(*step);
            for Action { stage, .. } in step.actions().filter(ends_backward) {
                let left = left.entry(stage).or_default();
                *left -= 1;
                if *left == 0 || updates == Updates::AfterEachMicroBatch {
                    due.push(stage);
                }
            }
        }
        result.extend(due.into_iter().map(|stage| of_stage(stage, kind)));
        result
    };
    rebuild(schedule, schedule.ranks().iter().map(with_kind).collect())
}

/// The stages that a step computes on.
fn stages_of(step: &ScheduleStep) -> Vec<u32> {
    let mut stages: Vec<u32> =
        step.actions().filter(|action| action.kind.is_compute()).map(|a| a.stage).collect();
    stages.dedup();
    stages
}

fn of_stage(stage: u32, kind: ActionKind) -> ScheduleStep {
    ScheduleStep::One(Action { stage, kind, micro_batch: 0 })
}

fn rebuild(schedule: &Schedule, ranks: Vec<Vec<ScheduleStep>>) -> Schedule {
    Schedule::new(ranks, schedule.placement().clone(), schedule.num_micro_batches())
        .unwrap_or_else(|error| panic!("a pass broke a valid schedule: {error}"))
        .updating(schedule.updates())
}
