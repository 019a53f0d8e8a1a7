//! Errors of runs: numbers that contradict each other, and training that makes too little progress.

use ir::units::Seconds;

use super::job::{Failures, OnFailure, TrainingJob};
use super::simulation::{MOST_TIMES_LONGER, PlayedRun};

/// Reason why a run cannot be simulated, or does not end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingRunError {
    /// Failures cost so much that a run would take many times as long.
    #[error(
        "{gpus} GPUs are interrupted every {between:.0} s, and lose {lost:.0} s each time: training would take more than \
         {MOST_TIMES_LONGER:.0} times as long\nhint: {works}"
    )]
    Interrupted {
        /// Number of GPUs.
        gpus: u32,
        /// Seconds between failures.
        between: f64,
        /// Seconds that each costs.
        lost: f64,
        /// Options with which training makes progress.
        works: String,
    },
    /// More failures than are simulated.
    #[error(
        "the run is interrupted some {failures:.0} times, more often than the {MOST_FAILURES:.0} that are simulated\n\
         hint: `--tokens {works:e}`, or less"
    )]
    TooMany {
        /// Expected number of failures.
        failures: f64,
        /// A number of tokens with which they are few enough.
        works: f64,
    },
    /// Slow nodes slow the run down by more than is simulated.
    #[error(
        "a step with slow nodes takes {slowdown:.0} times as long: training would take more than \
         {MOST_TIMES_LONGER:.0} times as long\nhint: a smaller factor in `--slow-nodes`, or a smaller share"
    )]
    Slow {
        /// Mean time of a step with slow nodes, over that without.
        slowdown: f64,
    },
    /// Nodes fail faster than they are repaired.
    #[error(
        "after {MOST_TIMES_LONGER:.0} times the days of a run without failures only {:.1} % is done: {missing} nodes are \
         repaired at once, and {spares} are spare\nhint: {works}",
        done * 100.0
    )]
    TooFewNodes {
        /// Share of the steps that are done.
        done: f64,
        /// Number of nodes in repair at once that is exceeded in one case in a hundred.
        missing: u32,
        /// Spare nodes.
        spares: u32,
        /// Options with which training makes progress.
        works: String,
    },
    /// More spare nodes than the job has.
    #[error(
        "{spares} spare nodes are more than the {nodes} that train\nhint: `--spares {works}`: in 99 of 100 cases no more \
         nodes are repaired at once"
    )]
    Spares {
        /// Spare nodes.
        spares: u32,
        /// Nodes of the job.
        nodes: u32,
        /// A number that is enough.
        works: u32,
    },
    /// Checkpoints more often than steps.
    #[error(
        "`--checkpoint-interval` of {} is shorter than a step, which takes {}\nhint: `--checkpoint-interval {}s`, or more",
        Seconds::new(*given),
        Seconds::new(*step),
        step.ceil()
    )]
    Interval {
        /// Seconds between checkpoints.
        given: f64,
        /// Seconds of a step.
        step: f64,
    },
    /// An interval of checkpoints that is shorter than the time to write one.
    #[error(
        "`--checkpoint-interval` of {} is shorter than the {} in which a checkpoint is written beside the training\nhint: `--checkpoint-interval {}s`, or more `--storage-bandwidth`",
        Seconds::new(*given),
        Seconds::new(*write),
        write.ceil()
    )]
    Unwritten {
        /// Seconds between checkpoints.
        given: f64,
        /// Seconds to write one.
        write: f64,
    },
    /// A mean time between failures that is not a positive number of hours.
    #[error(
        "`mtbf_hours` of {component} is {hours}, and must be more than 0\nhint: leave out what does not fail"
    )]
    Hours {
        /// The component.
        component: String,
        /// Hours of the component.
        hours: f64,
    },
}

/// Largest expected number of failures of a run, which are simulated in some seconds.
const MOST_FAILURES: f64 = 1e5;

/// Checks numbers before a run of `work` seconds of steps.
pub(super) fn check(
    job: &TrainingJob,
    failures: &Failures,
    work: f64,
) -> Result<(), TrainingRunError> {
    let is_wrong = |hours: f64| !hours.is_finite() || hours <= 0.0;
    if let Some(wrong) = failures.components.iter().find(|it| is_wrong(it.mtbf_hours)) {
        let (component, hours) = (wrong.component.clone(), wrong.mtbf_hours);
        return Err(TrainingRunError::Hours { component, hours });
    }
    let in_repair = failures.most_nodes_in_repair(job, f64::INFINITY);
    let most = job.num_nodes.max(in_repair);
    if let Some(spares) = failures.spares.filter(|spares| *spares > most) {
        let works = in_repair;
        return Err(TrainingRunError::Spares { spares, nodes: job.num_nodes, works });
    }
    if let Some(given) = failures.checkpoint_interval_seconds {
        let (step, write) = (job.step_seconds, job.checkpoint.lag);
        if given < step {
            return Err(TrainingRunError::Interval { given, step });
        }
        if given < write {
            return Err(TrainingRunError::Unwritten { given, write });
        }
    }
    let times = failures.times_longer(job, work);
    let is_hopeless = times > MOST_TIMES_LONGER;
    if !is_hopeless && times * job.slowdown > MOST_TIMES_LONGER {
        return Err(TrainingRunError::Slow { slowdown: job.slowdown });
    }
    if is_hopeless {
        return Err(interrupted(job, failures));
    }
    let expected = work * times * job.slowdown * failures.rate(job, 1.0);
    if expected > MOST_FAILURES {
        let tokens = work / job.step_seconds * job.tokens_per_step * MOST_FAILURES / expected;
        let works = 10_f64.powi(tokens.log10().floor() as i32);
        return Err(TrainingRunError::TooMany { failures: expected, works });
    }
    Ok(())
}

fn interrupted(job: &TrainingJob, failures: &Failures) -> TrainingRunError {
    let between = 1.0 / failures.rate(job, 1.0);
    // No more work is lost than was done since the last failure.
    let lost = failures.recovery(job) + (failures.cost(job) - failures.recovery(job)).min(between);
    let works = what_works(job, failures, between);
    TrainingRunError::Interrupted { gpus: job.num_gpus, between, lost, works }
}

/// Options with which at least half of the time is not lost to failures.
fn what_works(job: &TrainingJob, failures: &Failures, between: f64) -> String {
    let mut fewer = failures.clone();
    let mut times = 1.0;
    while fewer.cost(job) * 2.0 > between * times {
        times *= 2.0;
        for (component, own) in fewer.components.iter_mut().zip(&failures.components) {
            component.mtbf_hours = own.mtbf_hours * times;
        }
    }
    let hours = between * times * f64::from(job.num_gpus) / 3600.0;
    let fails_less = format!("`--gpu-mtbf {}`", hours.ceil());
    let shrinks = failures.on_failure != OnFailure::Shrink
        && job.replica_groups > 1
        && failures.stall_seconds * 2.0 <= between;
    let quicker = failures.restart_seconds - (failures.cost(job) - between / 2.0);
    if shrinks {
        format!("{fails_less}, or `--on-failure shrink`")
    } else if failures.on_failure != OnFailure::Shrink && quicker >= 1.0 {
        format!("{fails_less}, or `--restart-time {}s`", quicker.floor())
    } else {
        fails_less
    }
}

/// Checks that all runs reached their end.
pub(super) fn check_runs(
    job: &TrainingJob,
    failures: &Failures,
    runs: &[PlayedRun],
) -> Result<(), TrainingRunError> {
    let least = runs.iter().map(|run| run.done).fold(1.0, f64::min);
    if least >= 1.0 {
        return Ok(());
    }
    let Some(spares) = failures.spares else { return Err(interrupted(job, failures)) };
    let longest = runs.iter().map(|run| run.seconds).fold(0.0, f64::max);
    let missing = failures.most_nodes_in_repair(job, longest);
    let works = if (spares + 1..job.num_nodes).contains(&missing) {
        format!("`--spares {missing}`, or a shorter `--repair-time`")
    } else {
        // Waits for nodes take at most half of the time, even without spares.
        let most = 0.5 / failures.rate(job, 1.0);
        format!("`--repair-time {:.0}s`, or less", most.floor().max(1.0))
    };
    Err(TrainingRunError::TooFewNodes { done: least, missing, spares, works })
}
