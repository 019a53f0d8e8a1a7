//! Actions of a stage as a whole: gathering and freeing its parameters, reducing its gradients, updating it.

use std::collections::BTreeMap;

use crate::schedule::{Action, ActionKind, Schedule, Step, Updates};

/// Adds gathering of parameters before their stage computes, and freeing once the stage is not among the next
/// `most_gathered` stages of the rank (ZeRO-3 within stages). The next stages are gathered ahead up to that number, so
/// that gathering hides behind computation; an overlapped pair has both of its stages gathered even where one is
/// allowed.
///
/// # Source
///
/// The policy of PyTorch's `_add_unshard_reshard`, which gathers 3; stages are freed oldest first.
pub fn add_sharding(schedule: &Schedule, most_gathered: usize) -> Schedule {
    let ranks = schedule.ranks().iter().map(|steps| shard(steps, most_gathered.max(1)));
    rebuild(schedule, ranks.collect())
}

fn shard(steps: &[Step], most_gathered: usize) -> Vec<Step> {
    let computed: Vec<Vec<u32>> = steps.iter().map(stages_of).collect();
    let upcoming = Upcoming::new(&computed);
    let mut gathered: Vec<u32> = Vec::new();
    let mut result = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        if !computed[index].is_empty() {
            let mut wanted = upcoming.next_stages(index, most_gathered);
            for stage in &computed[index] {
                if !wanted.contains(stage) {
                    wanted.push(*stage);
                }
            }
            for stage in gathered.extract_if(.., |stage| !wanted.contains(stage)) {
                result.push(of_stage(stage, ActionKind::Reshard));
            }
            for stage in wanted {
                if !gathered.contains(&stage) {
                    gathered.push(stage);
                    result.push(of_stage(stage, ActionKind::Unshard));
                }
            }
        }
        result.push(*step);
    }
    result.extend(gathered.into_iter().map(|stage| of_stage(stage, ActionKind::Reshard)));
    result
}

/// The stages that a step computes on.
fn stages_of(step: &Step) -> Vec<u32> {
    let mut stages: Vec<u32> =
        step.actions().filter(|action| action.kind.is_compute()).map(|a| a.stage).collect();
    stages.dedup();
    stages
}

/// Indices of the steps that compute on each stage of a rank.
struct Upcoming {
    uses: BTreeMap<u32, Vec<usize>>,
}

impl Upcoming {
    fn new(computed: &[Vec<u32>]) -> Self {
        let mut uses: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, stages) in computed.iter().enumerate() {
            for stage in stages {
                uses.entry(*stage).or_default().push(index);
            }
        }
        Self { uses }
    }

    /// The next `count` distinct stages from step `index` on, soonest first.
    fn next_stages(&self, index: usize, count: usize) -> Vec<u32> {
        let next =
            |uses: &Vec<usize>| uses.get(uses.partition_point(|used| *used < index)).copied();
        let mut stages: Vec<(usize, u32)> = self
            .uses
            .iter()
            .filter_map(|(stage, uses)| next(uses).map(|used| (used, *stage)))
            .collect();
        stages.sort_unstable();
        stages.into_iter().take(count).map(|(_, stage)| stage).collect()
    }
}

/// Adds a reduction of the gradients of each stage over its replicas right after its last backward on the rank, while
/// other stages still work; after each backward in an asynchronous schedule.
pub fn add_reduction(schedule: &Schedule) -> Schedule {
    after_backwards(schedule, ActionKind::ReduceGrad, schedule.updates())
}

/// Adds an update of each stage: at the end of each rank's list after a flush, where a global gradient norm is known;
/// after each backward, and its reduction if there is one, in an asynchronous schedule.
pub fn add_optimizer_steps(schedule: &Schedule) -> Schedule {
    if schedule.updates() == Updates::AfterEachMicroBatch {
        return after_backwards(schedule, ActionKind::OptimizerStep, schedule.updates());
    }
    let with_updates = |steps: &Vec<Step>| {
        let mut stages: Vec<u32> = steps.iter().flat_map(stages_of).collect();
        stages.sort_unstable();
        stages.dedup();
        let updates = stages.into_iter().map(|stage| of_stage(stage, ActionKind::OptimizerStep));
        steps.iter().copied().chain(updates).collect()
    };
    rebuild(schedule, schedule.ranks().iter().map(with_updates).collect())
}

/// Adds an action after the last backward of each stage, or after each of them.
fn after_backwards(schedule: &Schedule, kind: ActionKind, updates: Updates) -> Schedule {
    let ends_backward =
        |action: &Action| matches!(action.kind, ActionKind::Backward | ActionKind::WeightGrad);
    let with_kind = |steps: &Vec<Step>| {
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

fn of_stage(stage: u32, kind: ActionKind) -> Step {
    Step::One(Action { stage, kind, micro_batch: 0 })
}

fn rebuild(schedule: &Schedule, ranks: Vec<Vec<Step>>) -> Schedule {
    Schedule::new(ranks, schedule.placement().clone(), schedule.num_micro_batches())
        .unwrap_or_else(|error| panic!("a pass broke a valid schedule: {error}"))
        .updating(schedule.updates())
}
