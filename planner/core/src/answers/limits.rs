//! The longest sequence that fits in memory, and the batch size above which throughput gains little.

use ir::plan::Training;
use serde::Serialize;

use super::layout_of;
use crate::problem::{LARGEST_BATCH, LONGEST_SEQUENCE, Problem, ProblemError};
use crate::search::{
    EvaluatedPlan, Go, OnNodes, Request, StopReason, first_fit, search_nodes,
    tokens_per_second_per_gpu,
};

/// Resolution of the sequence length: an eighth of the shorter length.
const PARTS_OF_A_DOUBLING: u64 = 8;

/// The shortest sequence that is tried, in tokens.
const SHORTEST_SEQUENCE: u64 = 256;

/// Largest number of doublings of the batch that are tried.
const DOUBLINGS: u32 = 14;

/// The problem with the longest sequence for which a plan fits, to a resolution of an eighth; `None` if no plan fits.
/// The tokens of a step stay the same, with at least one sequence, unless `holds_batch` keeps the global batch size.
pub fn longest_sequence(
    problem: &Problem,
    request: &Request,
    holds_batch: bool,
    is_fit: bool,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Option<Problem> {
    let training = problem.training;
    let tokens = training.global_batch_size * training.sequence_length;
    let odd = odd_part(problem);
    // Context-parallel ranks share a sequence, and replicas share the batch. If the number of GPUs has odd factors,
    // lengths and batches that are multiples of them are tried too.
    let posed = |length: u64| {
        let of_odd = length - length % (SHORTEST_SEQUENCE * odd);
        let lengths = [(length, 1), (of_odd, odd)].into_iter();
        let distinct = lengths.take(if odd > 1 { 2 } else { 1 }).filter(|(length, _)| *length > 0);
        distinct.map(move |(sequence_length, multiple)| {
            let usual = (tokens / sequence_length).max(1).next_multiple_of(multiple);
            let global_batch_size = if holds_batch { training.global_batch_size } else { usual };
            problem.with_training(Training { sequence_length, global_batch_size, ..training })
        })
    };
    let fits = |longer: &Problem, go: &mut (dyn FnMut() -> Go + Send)| {
        !first_fit(longer, request, go).plans.is_empty()
    };
    // The caller may know that the present length fits.
    let mut longest = is_fit.then(|| (problem.clone(), training.sequence_length));
    let mut length = if is_fit { 2 * training.sequence_length } else { SHORTEST_SEQUENCE };
    while length <= LONGEST_SEQUENCE && go() == Go::On {
        // The first lengths may be shorter than the documents. A length at which tensors are too large to be counted
        // does not fit.
        let all: Vec<Problem> = posed(length).flatten().collect();
        let is_too_short = all.is_empty() && longest.is_none();
        match all.into_iter().find(|longer| fits(longer, go)) {
            Some(longer) => longest = Some((longer, length)),
            None if is_too_short => {}
            None => break,
        }
        length *= 2;
    }
    let (mut best, shortest) = longest?;
    let (mut fitting, mut parts) = (0, PARTS_OF_A_DOUBLING);
    while parts - fitting > 1 && go() == Go::On {
        let middle = fitting.midpoint(parts);
        let mut longer = posed(shortest + shortest / PARTS_OF_A_DOUBLING * middle).flatten();
        match longer.find(|longer| fits(longer, go)) {
            Some(longer) => (fitting, best) = (middle, longer),
            None => parts = middle,
        }
    }
    Some(best)
}

/// The largest odd number that divides the number of GPUs.
fn odd_part(problem: &Problem) -> u64 {
    let gpus = u64::from(problem.limits.num_gpus);
    gpus >> gpus.trailing_zeros()
}

/// The best plan for one batch size, and its throughput.
#[derive(Clone, Debug, Serialize)]
pub struct BatchPoint {
    /// Sequences of a step, over all replicas.
    pub global_batch_size: u64,
    /// Step time, in seconds.
    pub step_time_seconds: f64,
    /// Tokens, or samples, per second and GPU; GPUs that the plan does not use count too.
    pub tokens_per_second_per_gpu: f64,
    /// The plan.
    #[serde(rename = "layout", serialize_with = "layout_of")]
    pub found: EvaluatedPlan,
    /// Nodes that the plan uses, where GPUs are of several kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
}

/// The best plans of growing batches, each twice the one before, until a doubling gains too little to tell the two
/// apart. Batches are multiples of the odd part of the number of GPUs, so that replicas divide them.
///
/// # Errors
///
/// [`ProblemError`] where the problem cannot be posed with such a batch.
pub fn batches(
    problem: &Problem,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Result<Vec<BatchPoint>, ProblemError> {
    let (gpus, odd) = (u64::from(problem.limits.num_gpus), odd_part(problem));
    let mut points: Vec<BatchPoint> = Vec::new();
    for doubling in 0..DOUBLINGS {
        let global_batch_size = (gpus / 64).max(1).next_multiple_of(odd) << doubling;
        if global_batch_size > LARGEST_BATCH {
            break;
        }
        let training = Training { global_batch_size, ..problem.training };
        let larger = problem.with_training(training)?;
        let OnNodes { outcome, nodes, .. } = search_nodes(&larger, request, &mut |_| go());
        if outcome.stop_reason != StopReason::Exhausted {
            break;
        }
        let Some(found) = outcome.plans.into_iter().next() else { continue };
        let step_time = found.evaluation.step_time;
        let rate = tokens_per_second_per_gpu(&larger, step_time);
        let gains_little = points
            .last()
            .is_some_and(|last| rate < last.tokens_per_second_per_gpu * (1.0 + LITTLE));
        points.push(BatchPoint {
            global_batch_size,
            step_time_seconds: step_time.get(),
            tokens_per_second_per_gpu: rate,
            found,
            nodes,
        });
        if gains_little {
            break;
        }
    }
    Ok(points)
}

/// Relative gain in throughput from a doubled batch below which no larger batch is tried.
const LITTLE: f64 = 0.005;
