//! Local search: swaps neighbouring forwards and input gradients of a rank as long as that improves the score.

use ir::schedule::{Action, ActionKind, Schedule, StagePlacement};

use super::list::{List, Outcome};
use super::policy::PATIENCE;
use super::request::{SchedulingRequest, Score};

/// Largest number of actions in all tries together; they take some tenths of a second.
const BUDGET: usize = 6_000_000;

/// Forwards and backwards of a schedule, by rank: the actions that the list scheduler does not place by itself.
pub(super) fn order(schedule: &Schedule) -> Vec<Vec<Action>> {
    let of_rank = |steps: &Vec<_>| {
        let actions = steps.iter().flat_map(|step: &ir::schedule::ScheduleStep| step.actions());
        actions.filter(|action| action.kind != ActionKind::WeightGrad).collect()
    };
    schedule.ranks().iter().map(of_rank).collect()
}

/// The best order reached by swaps of neighbours, if it beats `score`. Every order is tried without patience and with
/// that of a whole weight gradient; the first swap that improves is kept.
pub(super) fn improve(
    request: &SchedulingRequest<'_>,
    schedule: &Schedule,
    mut score: Score,
) -> Option<Outcome> {
    let placement = schedule.placement();
    let mut order = order(schedule);
    let num_actions: usize = order.iter().map(Vec::len).sum();
    let mut left = BUDGET / num_actions.max(1);
    let mut best = None;
    loop {
        let mut improved = false;
        for rank in 0..order.len() {
            for index in 1..order[rank].len() {
                if !may_swap(order[rank][index - 1], order[rank][index]) {
                    continue;
                }
                order[rank].swap(index - 1, index);
                let better = tries(request, placement, &order, &mut left)
                    .into_iter()
                    .filter(|(other, _)| *other < score)
                    .min_by_key(|(other, _)| *other);
                match better {
                    Some((other, outcome)) => {
                        score = other;
                        best = Some(outcome);
                        improved = true;
                    }
                    None => order[rank].swap(index - 1, index),
                }
                if left == 0 {
                    return best;
                }
            }
        }
        if !improved {
            return best;
        }
    }
}

/// True if two neighbours are of different kinds or stages, and not the forward and the backward of one micro-batch on
/// one stage; within one kind and stage, micro-batches keep their order.
fn may_swap(first: Action, second: Action) -> bool {
    let is_forward = |action: Action| action.kind == ActionKind::Forward;
    let same_micro_batch = (first.stage, first.micro_batch) == (second.stage, second.micro_batch);
    let differ = is_forward(first) != is_forward(second) || first.stage != second.stage;
    differ && !same_micro_batch
}

/// The order with weight gradients filled in, for each patience that the budget allows.
fn tries(
    request: &SchedulingRequest<'_>,
    placement: &StagePlacement,
    order: &[Vec<Action>],
    left: &mut usize,
) -> Vec<(Score, Outcome)> {
    let mut tried = Vec::new();
    for patience in [PATIENCE[0], 1.0] {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let outcome = List::new(request, placement).refill(order, patience);
        tried.extend(outcome.and_then(|outcome| Some((outcome.score(request)?, outcome))));
    }
    tried
}
