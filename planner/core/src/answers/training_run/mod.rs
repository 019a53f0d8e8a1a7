//! Training on a number of tokens: days, cost, energy, and the time lost to failures.

mod checkpoints;
mod components;
mod error;
mod job;
mod simulation;
mod smaller;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ir::units::Bytes;
use rayon::prelude::*;
use serde::Serialize;

use crate::search::Quantiles;
use simulation::{PlayedRun, play};

pub use checkpoints::{CheckpointBytes, CheckpointLinks, CheckpointTimes, CheckpointTo};
pub use components::{Component, Per};
pub use error::TrainingRunError;
pub use job::{Failures, OnFailure, TrainingJob};
pub use simulation::LostTime;
pub use smaller::{SmallerPlan, slowdown, smaller_plans};

/// Price and power of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Price of a GPU hour, in any currency.
    pub gpu_hour: Option<f64>,
    /// The most power that a GPU draws, in watts.
    pub watts: Option<f64>,
}

/// Time, cost and energy of a training run: means over simulated runs, unless a field says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingRun {
    /// Number of tokens, or of samples.
    pub tokens: f64,
    /// Number of optimizer steps.
    pub steps: f64,
    /// Days, with the time lost to failures and checkpoints.
    pub days: f64,
    /// Quantiles of the days.
    pub days_quantiles: Quantiles,
    /// Days without failures, checkpoints and slow nodes.
    pub days_without_failures: f64,
    /// Days that are lost. Together with `days_without_failures` they are all days.
    pub lost_days: LostTime,
    /// Share of the run's time that goes into steps that last.
    pub goodput: f64,
    /// Reaction to the failure of a node.
    pub on_failure: OnFailure,
    /// Number of interruptions.
    pub interruptions: f64,
    /// Number of interruptions by component.
    pub interruptions_by_component: BTreeMap<String, f64>,
    /// Mean hours between failures of all GPUs together.
    pub hours_between_failures: f64,
    /// Seconds between checkpoints.
    pub checkpoint_interval_seconds: f64,
    /// Seconds that training stops for a checkpoint.
    pub checkpoint_seconds: f64,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: Bytes,
    /// Spare nodes, if their number is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<u32>,
    /// Number of nodes in repair at once that is not exceeded in 99 of 100 cases.
    pub nodes_in_repair_p99: u32,
    /// GPU hours of the run, spare nodes included.
    pub gpu_hours: f64,
    /// Price of the GPU hours, if a price was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Quantiles of the price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_quantiles: Option<Quantiles>,
    /// The most energy that GPUs draw, in megawatt hours, if their power is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub megawatt_hours: Option<f64>,
    /// Number of simulated runs.
    pub simulated_runs: u32,
    /// Seed of their random numbers.
    pub seed: u64,
}

/// Number of simulated runs: with some hundred failures in each, their mean is off by less than a thousandth.
const RUNS: u32 = 256;

impl TrainingRun {
    /// Simulates runs of a job over `tokens`.
    ///
    /// # Errors
    ///
    /// [`TrainingRunError`] where numbers contradict each other, or training makes too little progress.
    pub fn new(
        tokens: f64,
        job: &TrainingJob,
        failures: &Failures,
        prices: &Prices,
        seed: u64,
    ) -> Result<Self, TrainingRunError> {
        let steps = (tokens / job.tokens_per_step).ceil();
        let work = steps * job.step_seconds;
        error::check(job, failures, work)?;
        // Neighbouring seeds have no run in common.
        let seed_of = |run: u32| seed.wrapping_mul(RUNS.into()).wrapping_add(run.into());
        let runs: Vec<PlayedRun> =
            (0..RUNS).into_par_iter().map(|run| play(job, failures, work, seed_of(run))).collect();
        error::check_runs(job, failures, &runs)?;
        Ok(Self::of_runs((tokens, steps, seed), job, failures, prices, &runs))
    }

    fn of_runs(
        (tokens, steps, seed): (f64, f64, u64),
        job: &TrainingJob,
        failures: &Failures,
        prices: &Prices,
        runs: &[PlayedRun],
    ) -> Self {
        const DAY: f64 = 86_400.0;
        let num_runs = runs.len() as f64;
        // Written so that the mean of equal values is exactly that value.
        let mean = |of: &dyn Fn(&PlayedRun) -> f64| {
            let first = of(&runs[0]);
            first + runs.iter().map(|run| of(run) - first).sum::<f64>() / num_runs
        };
        let plain = steps * job.step_seconds;
        let mut lost_days = LostTime::default();
        for run in runs {
            let mut lost = run.lost;
            for (sum, part) in lost_days.parts().into_iter().zip(lost.parts()) {
                *sum += *part / num_runs / DAY;
            }
        }
        let mut days: Vec<f64> = runs.iter().map(|run| run.seconds / DAY).collect();
        days.sort_by(f64::total_cmp);
        let mean_days = mean(&|run| run.seconds / DAY);
        let spare_gpus = failures.spares.unwrap_or(0) * job.num_gpus.div_ceil(job.num_nodes);
        let gpus = f64::from(job.num_gpus + spare_gpus);
        let hours = mean_days * 24.0 * gpus;
        let mut by_component = BTreeMap::new();
        for (index, component) in failures.components.iter().enumerate() {
            let count = mean(&|run| run.failures[index] as f64);
            *by_component.entry(component.component.clone()).or_default() += count;
        }
        Self {
            tokens,
            steps,
            days: mean_days,
            days_quantiles: quantiles(&days, 1.0),
            days_without_failures: plain / DAY,
            lost_days,
            goodput: plain / DAY / mean_days,
            on_failure: failures.on_failure,
            interruptions: mean(&|run| run.failures.iter().sum::<u64>() as f64),
            interruptions_by_component: by_component,
            hours_between_failures: 1.0 / failures.rate(job, 1.0) / 3600.0,
            checkpoint_interval_seconds: failures.interval(job),
            checkpoint_seconds: job.checkpoint.stall,
            checkpoint_bytes: job.checkpoint_bytes,
            spares: failures.spares,
            nodes_in_repair_p99: failures.most_nodes_in_repair(job, mean_days * DAY),
            gpu_hours: hours,
            cost: prices.gpu_hour.map(|price| price * hours),
            cost_quantiles: prices.gpu_hour.map(|price| quantiles(&days, 24.0 * gpus * price)),
            megawatt_hours: prices.watts.map(|watts| watts * hours / 1e6),
            simulated_runs: RUNS,
            seed,
        }
    }
}

/// Quantiles of sorted numbers, times a factor.
fn quantiles(sorted: &[f64], factor: f64) -> Quantiles {
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize] * factor;
    Quantiles { p10: at(0.1), p50: at(0.5), p90: at(0.9) }
}
