//! Training on a number of tokens: days, cost, energy, and the time lost to failures.

use serde::Serialize;

/// Rate of failures, and the checkpoints that limit their cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    /// Mean time between failures of one GPU and its share of the other hardware, in GPU hours.
    pub gpu_hours_between: f64,
    /// Seconds between checkpoints; `None` for the interval at which least time is lost.
    pub checkpoint_interval_seconds: Option<f64>,
    /// Seconds that training stops for a checkpoint.
    pub checkpoint_seconds: f64,
    /// Seconds from a failure until training goes on from the last checkpoint.
    pub restart_seconds: f64,
}

impl Failures {
    /// Mean time between failures of a GPU where none is given, in hours.
    ///
    /// # Source
    ///
    /// Grattafiori et al. 2024, *The Llama 3 Herd of Models* (arXiv 2407.21783), section 3.3.4: 419 unexpected
    /// interruptions in 54 days on 16,384 GPUs.
    pub const USUAL_GPU_HOURS_BETWEEN: f64 = 16_384.0 * 54.0 * 24.0 / 419.0;

    /// Seconds to restart where none are given; assumed. With these and the other defaults, the run above reaches 92 %
    /// of its time, where its authors write of over 90.
    pub const USUAL_RESTART_SECONDS: f64 = 600.0;

    /// Bytes per second of a checkpoint that a node writes.
    ///
    /// # Source
    ///
    /// The same, section 3.3.1: storage that sustains 2 TB/s for 16,384 GPUs, 8 to a node.
    pub const NODE_WRITES: f64 = 1e9;
}

/// Price and power of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Price of a GPU hour, in any currency.
    pub gpu_hour: Option<f64>,
    /// The most power that a GPU draws, in watts.
    pub watts: Option<f64>,
}

/// Time, cost and energy of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainingRun {
    /// Number of tokens, or of samples.
    pub tokens: f64,
    /// Number of optimizer steps.
    pub steps: f64,
    /// Days, with the time lost to failures and checkpoints.
    pub days: f64,
    /// Share of the run's time that goes into steps that last.
    pub goodput: f64,
    /// Seconds between checkpoints.
    pub checkpoint_interval_seconds: f64,
    /// Seconds that training stops for a checkpoint.
    pub checkpoint_seconds: f64,
    /// Mean hours between failures of all GPUs together.
    pub hours_between_failures: f64,
    /// GPU hours of the run.
    pub gpu_hours: f64,
    /// Price of the GPU hours, if a price was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The most energy that GPUs draw, in megawatt hours, if their power is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub megawatt_hours: Option<f64>,
}

/// Training that loses more time to each failure than lies between two of them.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "{gpus} GPUs are interrupted every {between:.0} s, and lose {lost:.0} s each time: training would not get on\n\
     hint: more hours between failures (`--gpu-mtbf`), shorter restarts or checkpoints more often"
)]
pub struct TrainingRunError {
    gpus: u32,
    between: f64,
    lost: f64,
}

impl TrainingRun {
    /// A run over `tokens`, with steps of `step_seconds` that take `tokens_per_step` each.
    ///
    /// ```text
    /// wall = T (1 + d / i) / (1 - (i / 2 + r) / M),  i = sqrt(2 d M)
    /// ```
    ///
    /// with T the time of all steps, d seconds for a checkpoint every i, r to restart, and M between failures.
    ///
    /// # Source
    ///
    /// Young 1974, *A first order approximation to the optimum checkpoint interval* (CACM 17, 9).
    ///
    /// # Errors
    ///
    /// [`TrainingRunError`] where an interruption costs more than the time to the next.
    pub fn new(
        tokens: f64,
        (tokens_per_step, step_seconds): (f64, f64),
        num_gpus: u32,
        failures: &Failures,
        prices: &Prices,
    ) -> Result<Self, TrainingRunError> {
        let gpus = f64::from(num_gpus);
        let between = failures.gpu_hours_between * 3600.0 / gpus;
        let checkpoint = failures.checkpoint_seconds;
        let best = (2.0 * checkpoint * between).sqrt().max(step_seconds);
        let interval = failures.checkpoint_interval_seconds.unwrap_or(best);
        let lost = interval / 2.0 + failures.restart_seconds;
        if lost >= between {
            return Err(TrainingRunError { gpus: num_gpus, between, lost });
        }
        let goodput = (1.0 - lost / between) / (1.0 + checkpoint / interval);
        let steps = (tokens / tokens_per_step).ceil();
        let hours = steps * step_seconds / goodput / 3600.0;
        Ok(Self {
            tokens,
            steps,
            days: hours / 24.0,
            goodput,
            checkpoint_interval_seconds: interval,
            checkpoint_seconds: checkpoint,
            hours_between_failures: between / 3600.0,
            gpu_hours: hours * gpus,
            cost: prices.gpu_hour.map(|price| price * hours * gpus),
            megawatt_hours: prices.watts.map(|watts| watts * hours * gpus / 1e6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES: Failures = Failures {
        gpu_hours_between: Failures::USUAL_GPU_HOURS_BETWEEN,
        checkpoint_interval_seconds: None,
        checkpoint_seconds: 3.0,
        restart_seconds: Failures::USUAL_RESTART_SECONDS,
    };

    fn run(failures: &Failures) -> Result<TrainingRun, TrainingRunError> {
        TrainingRun::new(15e12, (16e6, 20.0), 16_384, failures, &Prices::default())
    }

    #[test]
    fn the_herds_run_reaches_over_nine_tenths_of_its_time() {
        let run = run(&FAILURES).unwrap();
        assert!((0.90..0.95).contains(&run.goodput), "{run:?}");
        assert!((run.hours_between_failures - 54.0 * 24.0 / 419.0).abs() < 1e-9);
    }

    #[test]
    fn no_other_interval_loses_less_than_the_one_that_is_chosen() {
        let failures = Failures { restart_seconds: 0.0, ..FAILURES };
        let best = run(&failures).unwrap();
        for factor in [0.25, 0.5, 2.0, 4.0] {
            let interval = best.checkpoint_interval_seconds * factor;
            let other = Failures { checkpoint_interval_seconds: Some(interval), ..failures };
            assert!(run(&other).unwrap().goodput < best.goodput, "{factor}");
        }
    }

    #[test]
    fn what_loses_more_than_it_gains_is_refused() {
        let hopeless = Failures { gpu_hours_between: 100.0, ..FAILURES };
        assert!(run(&hopeless).is_err());
    }
}
