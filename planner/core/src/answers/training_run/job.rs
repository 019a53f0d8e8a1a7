//! A training job, as far as failures depend on it, and the reaction to failures.

use ir::units::Bytes;
use serde::Serialize;

use super::checkpoints::CheckpointTimes;
use super::components::Component;
use super::smaller::SmallerPlan;

/// Reaction to the failure of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// All GPUs stop, wait for another node if there is no spare one, and restart from the last checkpoint.
    #[default]
    Wait,
    /// Replicas without a failed node go on, with a smaller batch, and the others come back after a restart.
    Shrink,
    /// All GPUs stop, and restart with the best plan for the nodes that are left.
    Replan,
}

/// Rates of failures, and the reaction to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Failures {
    /// Components that fail.
    pub components: Vec<Component>,
    /// Reaction to a failure.
    pub on_failure: OnFailure,
    /// Spare nodes that are ready; `None` if they never run out.
    pub spares: Option<u32>,
    /// Seconds until a failure is noticed.
    pub detection_seconds: f64,
    /// Seconds to start all processes and connect them, without reading the checkpoint.
    pub restart_seconds: f64,
    /// Seconds for which all replicas stop when one fails and the others go on, including the step that is lost.
    pub stall_seconds: f64,
    /// Seconds until a node that was taken out is back.
    pub repair_seconds: f64,
    /// Training seconds between checkpoints; `None` for the interval at which least time is lost.
    pub checkpoint_interval_seconds: Option<f64>,
}

/// The properties of a plan that failures and their costs depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingJob {
    /// Number of GPUs.
    pub num_gpus: u32,
    /// Number of nodes with these GPUs.
    pub num_nodes: u32,
    /// Number of groups of replicas that fail independently of each other.
    pub replica_groups: u32,
    /// Seconds of a step.
    pub step_seconds: f64,
    /// Ratio of the mean time of a step with slow nodes to the time without them.
    pub slowdown: f64,
    /// Tokens of a step, or samples.
    pub tokens_per_step: f64,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: Bytes,
    /// Times of a checkpoint.
    pub checkpoint: CheckpointTimes,
    /// Plans for fewer nodes, the most first.
    pub smaller: Vec<SmallerPlan>,
}

impl TrainingJob {
    /// Failures of a component per second on a share of the nodes.
    pub(super) fn rate(&self, component: &Component, share: f64) -> f64 {
        let [gpus, nodes] = [self.num_gpus, self.num_nodes].map(|all| f64::from(all) * share);
        component.rate(gpus, nodes)
    }
}

impl Failures {
    /// Seconds until a failure is noticed, where none are given.
    ///
    /// # Source
    ///
    /// Salpekar et al. 2026, *Training LLMs with Fault Tolerant HSDP on 100,000 GPUs* (arXiv 2602.00277): replicas wait
    /// 60 s for a collective to time out.
    pub const USUAL_DETECTION_SECONDS: f64 = 60.0;

    /// Seconds to restart, where none are given: ten minutes, less the time until a failure is noticed.
    ///
    /// # Source
    ///
    /// The same: training stops for 10 minutes at each failure where all restart.
    pub const USUAL_RESTART_SECONDS: f64 = 540.0;

    /// Seconds for which all replicas stop when one fails and the others go on.
    ///
    /// # Source
    ///
    /// The same: 3 minutes, among them the time until the failure is noticed and the step that is computed again.
    pub const USUAL_STALL_SECONDS: f64 = 180.0;

    /// Seconds until a node that was taken out is back, where none are given.
    ///
    /// # Source
    ///
    /// Arfeen et al. 2025, *Nonuniform-Tensor-Parallelism* (arXiv 2504.06095): 3 to 5 days for hardware.
    pub const USUAL_REPAIR_SECONDS: f64 = 3.0 * 86_400.0;

    /// Seconds between checkpoints where no failure needs one, as the other replicas have the same states.
    ///
    /// # Source
    ///
    /// Le Scao et al. 2022, *BLOOM* (arXiv 2211.05100): every three hours.
    pub const USUAL_INTERVAL_SECONDS: f64 = 10_800.0;

    /// Failures per second on a share of a job's nodes.
    pub(super) fn rate(&self, job: &TrainingJob, share: f64) -> f64 {
        self.components.iter().fold(0.0, |sum, it| sum + job.rate(it, share))
    }

    /// Training seconds between checkpoints, in whole steps.
    ///
    /// ```text
    /// i = sqrt(2 d M)
    /// ```
    ///
    /// with `d` the seconds that training stops for a checkpoint, and `M` the mean seconds between failures. The
    /// interval is at least the time to write a checkpoint.
    ///
    /// # Source
    ///
    /// Young 1974, *A first order approximation to the optimum checkpoint interval* (CACM 17, 9).
    pub(super) fn interval(&self, job: &TrainingJob) -> f64 {
        /// Seconds, more than any run takes.
        const NEVER: f64 = 1e12;
        let usual = match self.on_failure {
            OnFailure::Shrink => Self::USUAL_INTERVAL_SECONDS,
            OnFailure::Wait | OnFailure::Replan => {
                (2.0 * job.checkpoint.stall / self.rate(job, 1.0)).sqrt()
            }
        };
        let interval = self.checkpoint_interval_seconds.unwrap_or(usual).min(NEVER);
        let steps = (interval / job.step_seconds).round();
        steps.max((job.checkpoint.lag / job.step_seconds).ceil()).max(1.0) * job.step_seconds
    }

    /// Seconds of a recovery: until training goes on after a failure.
    pub(super) fn recovery(&self, job: &TrainingJob) -> f64 {
        match self.on_failure {
            OnFailure::Shrink => self.stall_seconds,
            OnFailure::Wait | OnFailure::Replan => {
                self.detection_seconds + self.restart_seconds + job.checkpoint.load
            }
        }
    }

    /// Seconds that a failure costs: the recovery, and half an interval of work.
    pub(super) fn cost(&self, job: &TrainingJob) -> f64 {
        match self.on_failure {
            OnFailure::Shrink => self.recovery(job),
            OnFailure::Wait | OnFailure::Replan => self.recovery(job) + self.interval(job) / 2.0,
        }
    }

    /// Mean time of a run of `work` seconds of steps, relative to the time without failures, if spare nodes never run
    /// out; infinite where recoveries do not end.
    ///
    /// ```text
    /// (e^((i + d) / M) - 1) M / i / (1 - r / M)
    /// ```
    ///
    /// with `i` the interval between checkpoints, at most the whole run; `d` the stop for a checkpoint; `M` the mean
    /// time between failures; and `r` the time of a recovery, during which other failures can come; all in seconds.
    /// Where the other replicas go on, only the stops of all replicas are lost.
    ///
    /// # Source
    ///
    /// Daly 2006, *A higher order estimate of the optimum checkpoint interval for restart dumps* (FGCS 22, 3), except
    /// for failures during a restart.
    pub(super) fn times_longer(&self, job: &TrainingJob, work: f64) -> f64 {
        let rate = self.rate(job, 1.0);
        let recoveries = 1.0 / (1.0 - self.recovery(job) * rate).max(0.0);
        if rate == 0.0 || self.on_failure == OnFailure::Shrink {
            return recoveries;
        }
        let interval = self.interval(job).min(work);
        ((interval + job.checkpoint.stall) * rate).exp_m1() / (interval * rate) * recoveries
    }

    /// Number of nodes in repair at once that is not exceeded in 99 of 100 cases, in a run of `seconds`: a quantile of
    /// a Poisson distribution.
    ///
    /// # Source
    ///
    /// Wan et al. 2025, *Robust LLM Training Infrastructure at ByteDance* (arXiv 2509.16293), who keep this number of
    /// standby nodes.
    pub fn most_nodes_in_repair(&self, job: &TrainingJob, seconds: f64) -> u32 {
        const SHARE: f64 = 0.99;
        // Quantile of the standard normal distribution, which stands in for the Poisson distribution of a large mean.
        const QUANTILE: f64 = 2.326;
        const MANY: f64 = 500.0;
        let taken_out = self.components.iter().filter(|it| it.replaces_node);
        let rate: f64 = taken_out.fold(0.0, |sum, it| sum + job.rate(it, 1.0));
        let mean = rate * self.repair_seconds.min(seconds);
        if mean > MANY {
            return (mean + QUANTILE * mean.sqrt()).ceil().min(f64::from(u32::MAX)) as u32;
        }
        let (mut nodes, mut log_of_one, mut sum) = (0_u32, -mean, (-mean).exp());
        while sum < SHARE {
            nodes += 1;
            log_of_one += (mean / f64::from(nodes)).ln();
            sum += log_of_one.exp();
        }
        nodes
    }
}
