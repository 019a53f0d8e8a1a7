//! Plans for a degraded cluster: fewer nodes, or slow ones.

use ir::units::{Nanos, Seconds};
use simulator::straggling_step;

use super::super::front::on_fewer;
use crate::problem::{Problem, ProblemError};
use crate::search::{EvaluatedPlan, Go, Request, StopReason, on_groups, search};
use crate::step::{SimulateError, Step};

/// The best plan on fewer nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallerPlan {
    /// Number of nodes.
    pub num_nodes: u32,
    /// Seconds of a step with the same batch.
    pub step_seconds: f64,
}

/// The best plans for the same batch on fewer nodes, without those that are no faster than a plan on still fewer nodes.
/// The search leaves out one more node at a time, down to `most_missing` nodes fewer. From there it goes on until even
/// perfect scaling of the plan for all nodes, which takes `step_seconds`, would not beat the last plan on fewer nodes.
///
/// # Errors
///
/// [`ProblemError`] where the problem cannot be posed on fewer GPUs.
pub fn smaller_plans(
    problem: &Problem,
    request: &Request,
    gpus_per_node: u32,
    (step_seconds, most_missing): (f64, u32),
    go: &mut (dyn FnMut() -> Go + Send),
) -> Result<Vec<SmallerPlan>, ProblemError> {
    let request = on_fewer(request);
    let all = problem.limits.num_gpus / gpus_per_node;
    let mut plans: Vec<SmallerPlan> = Vec::new();
    for num_nodes in (1..all).rev() {
        let at_best = step_seconds * f64::from(all) / f64::from(num_nodes);
        let is_enough = plans.last().is_some_and(|last| {
            all - last.num_nodes >= most_missing && last.step_seconds <= at_best
        });
        if is_enough || go() != Go::On {
            break;
        }
        let smaller = problem.with_gpus(num_nodes * gpus_per_node)?;
        let outcome = search(&smaller, &request, &mut |_| go());
        if outcome.stop_reason != StopReason::Exhausted {
            break;
        }
        if let Some(found) = outcome.plans.first() {
            let step_seconds = found.evaluation.step_time.get();
            plans.retain(|larger| larger.step_seconds < step_seconds);
            plans.push(SmallerPlan { num_nodes, step_seconds });
        }
    }
    Ok(plans)
}

/// Ratio of the mean time of a step with slow nodes to the time without them. Each node is slow for a share of the
/// time, and then takes `factor` times as long to compute. A step waits for the slowest node, which is taken to be in
/// the pipeline rank where that costs most.
///
/// ```text
/// 1 + (1 - (1 - s)^n) (t_slow / t - 1)
/// ```
///
/// # Errors
///
/// [`SimulateError`]; none for a checked layout.
pub fn slowdown(
    problem: &Problem,
    plan: &EvaluatedPlan,
    num_nodes: u32,
    (share, factor): (f64, f64),
) -> Result<f64, SimulateError> {
    let of_slowest = |step: &Step<'_>| {
        let schedule = step.schedule()?;
        let with_slow = |rank| straggling_step(&schedule, &step.work, rank, factor);
        let mut slowest = Nanos::ZERO;
        for rank in 0..step.work.ranks.len() {
            slowest = slowest.max(with_slow(rank)?);
        }
        Ok(slowest)
    };
    let of_groups = on_groups(problem, plan.layout, &plan.stage_ends, of_slowest).into_iter();
    let slowest = of_groups.collect::<Result<Vec<Nanos>, SimulateError>>()?.into_iter().max();
    let alone = plan.evaluation.step_time.get();
    let slowest = slowest.map_or(alone, |it| Seconds::from(it).get().max(alone));
    let is_any_slow = 1.0 - (1.0 - share).powf(f64::from(num_nodes));
    Ok(1.0 + is_any_slow * (slowest / alone - 1.0))
}
