//! Ensemble of possible stacks: frameworks and constants of the cost model, drawn with a fixed seed.
//!
//! Constants differ between machines by their [spread](cost_models::constants::Constant::spread), and by less where
//! steps of the machine itself were measured. A framework that stands for others is replaced by each of them in equally
//! many draws. Two plans share the draws of a constant, so a constant on which both depend alike does not change the
//! difference between them. The error that no constant explains is drawn for each plan separately.

use cost_models::constants::{CONSTANTS, Constant};
use cost_models::residuals::PAIRED_REST;
use ir::layout::MicroBatchesByGroup;
use ir::units::{Nanos, Seconds};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use simulator::normal_deviates;
use traces::statistics::quantile;

use super::evaluated_plan::{EvaluatedPlan, on_groups};
use crate::problem::{Problem, stacks};
use crate::step::{Orders, Step};

/// Number of draws: shares of them are off by at most 1.6 points (one standard deviation).
const DRAWS: usize = 1024;

/// Relative step of a constant for finite differences: large, as draws move a constant by its whole spread.
const STEP: f64 = 0.1;

/// Logarithms of the step times of plans, in every draw.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ensemble {
    /// Logarithms by plan and draw.
    logs: Vec<Vec<f64>>,
}

impl Ensemble {
    /// An ensemble of plans, each with its problem.
    pub(super) fn of(plans: &[(&Problem, &EvaluatedPlan)]) -> Self {
        let orders = Orders::default();
        let drawn = |(problem, found): &(&Problem, &EvaluatedPlan)| drawn(problem, found, &orders);
        Self { logs: plans.par_iter().map(drawn).collect() }
    }

    /// An ensemble of plans whose draws were made before.
    pub(super) const fn from_logs(logs: Vec<Vec<f64>>) -> Self {
        Self { logs }
    }

    /// The draws.
    pub(super) fn into_logs(self) -> Vec<Vec<f64>> {
        self.logs
    }

    /// The share of the draws in which each plan is the fastest.
    pub(super) fn fastest(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.logs.len()];
        for draw in 0..DRAWS {
            let least = self.least(draw);
            let is_first = |logs: &&Vec<f64>| logs[draw] <= least;
            // A plan that occurs twice splits its wins between both.
            let count = self.logs.iter().filter(is_first).count();
            for (share, _) in shares.iter_mut().zip(&self.logs).filter(|(_, logs)| is_first(logs)) {
                *share += 1.0 / (count * DRAWS) as f64;
            }
        }
        shares
    }

    /// Regret of each plan: the mean over the draws of its time beyond the fastest's, as a share of the latter.
    pub(super) fn losses(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.logs.len()];
        for draw in 0..DRAWS {
            let least = self.least(draw);
            for (sum, logs) in sums.iter_mut().zip(&self.logs) {
                *sum += (logs[draw] - least).exp_m1();
            }
        }
        sums.into_iter().map(|sum| sum / DRAWS as f64).collect()
    }

    /// Share of the first plan's time that the second saves: the central interval that holds `share` of the draws.
    pub(super) fn saving(&self, share: f64) -> [f64; 2] {
        let [first, second, ..] = self.logs.as_slice() else { return [0.0; 2] };
        let saved: Vec<f64> =
            first.iter().zip(second).map(|(one, other)| -(other - one).exp_m1()).collect();
        [(1.0 - share) / 2.0, f64::midpoint(1.0, share)].map(|share| quantile(&saved, share))
    }

    fn least(&self, draw: usize) -> f64 {
        self.logs.iter().map(|logs| logs[draw]).fold(f64::INFINITY, f64::min)
    }
}

/// Logarithms of a plan's step time in every draw.
fn drawn(problem: &Problem, found: &EvaluatedPlan, orders: &Orders) -> Vec<f64> {
    // Everything in which plans differ: a layout's name leaves out ZeRO, recompute and micro-batches.
    let plan = format!("{:?} {:?}", *found.layout, found.stage_ends);
    // Plans on GPUs of one kind have the draws that they had before replicas could lie in groups.
    let of_one_kind = format!("micro_batches_by_group: {:?}, ", MicroBatchesByGroup::NONE);
    let plan = plan.replace(&of_one_kind, "");
    let own = PAIRED_REST / std::f64::consts::SQRT_2;
    let mut logs: Vec<f64> = deviates(&plan).take(DRAWS).map(|deviate| own * deviate).collect();
    let stacks = stacks(problem);
    for (first, stack) in stacks.iter().enumerate() {
        let (log, slopes) = linear(stack, found, orders);
        let members = logs.iter_mut().skip(first).step_by(stacks.len());
        members.for_each(|it| *it += log);
        for (key, slope) in slopes {
            let drawn = deviates(&key).take(DRAWS).skip(first).step_by(stacks.len());
            let members = logs.iter_mut().skip(first).step_by(stacks.len());
            members.zip(drawn).for_each(|(log, deviate)| *log += slope * deviate);
        }
    }
    logs
}

/// Standard normal deviates, seeded by a name.
fn deviates(name: &str) -> impl Iterator<Item = f64> {
    let digest: [u8; 32] = Sha256::digest(name).into();
    let (first, _) = digest.split_first_chunk().expect("32 bytes have 8");
    normal_deviates(u64::from_le_bytes(*first))
}

/// The logarithm of a plan's time, and its linear approximation in the logarithms of the machine's constants: by the
/// key of each constant, the change for one standard deviation of it.
fn linear(problem: &Problem, found: &EvaluatedPlan, orders: &Orders) -> (f64, Vec<(String, f64)>) {
    let log = log_of_time(problem, found, orders);
    let log = log.unwrap_or_else(|| found.evaluation.step_time.get().ln());
    let slopes = slopes(problem, log, |moved| log_of_time(moved, found, orders));
    let slopes = slopes.map(|(constant, slope)| {
        (constant.key(&problem.hardware), slope * spread(constant, problem))
    });
    (log, slopes.collect())
}

/// Derivatives of the logarithm of a time with respect to the logarithms of the constants that it depends on; `log` is
/// the value of that logarithm.
fn slopes(
    problem: &Problem,
    log: f64,
    log_of_time: impl Fn(&Problem) -> Option<f64>,
) -> impl Iterator<Item = (&'static Constant, f64)> {
    CONSTANTS.iter().filter_map(move |constant| {
        let mut moved = problem.clone();
        (constant.of(&mut moved.hardware) != 0.0).then_some(())?;
        moved.all_hardware_mut().for_each(|hardware| constant.scale(hardware, 1.0 + STEP));
        let slope = (log_of_time(&moved)? - log) / STEP.ln_1p();
        (slope != 0.0).then_some((constant, slope))
    })
}

/// Standard deviation of the logarithm of the ratio of a measured time to the predicted one, `seconds`. It follows from
/// the spreads of the constants that the time depends on, and from the error that no constant explains.
pub fn log_deviation(
    problem: &Problem,
    seconds: f64,
    predict: impl Fn(&Problem) -> Option<f64>,
) -> f64 {
    let slopes = slopes(problem, seconds.ln(), |moved| Some(predict(moved)?.ln()));
    let of_constants = slopes.map(|(constant, slope)| (slope * constant.spread).powi(2));
    (of_constants.sum::<f64>() + PAIRED_REST.powi(2)).sqrt()
}

impl EvaluatedPlan {
    /// [`log_deviation`] of the plan's step.
    pub fn log_deviation(&self, problem: &Problem) -> f64 {
        let seconds = self.evaluation.step_time.get();
        let orders = Orders::default();
        log_deviation(problem, seconds, |moved| log_of_time(moved, self, &orders).map(f64::exp))
    }
}

/// Standard deviation of the logarithm of a constant, on the machine of the problem.
fn spread(constant: &Constant, problem: &Problem) -> f64 {
    let hardware = &problem.hardware;
    let calibration = hardware.framework.calibration.as_ref();
    calibration
        .filter(|it| it.gpu == hardware.device.training_set)
        .and_then(|it| it.spreads.get(&constant.name_on_machine()).copied())
        .unwrap_or(constant.spread)
}

fn log_of_time(problem: &Problem, found: &EvaluatedPlan, orders: &Orders) -> Option<f64> {
    let time = |step: &Step<'_>| orders.step_time(&step.layout, &step.work);
    let times = on_groups(problem, found.layout, &found.stage_ends, time);
    let times: Option<Vec<Nanos>> = times.into_iter().map(Result::ok).collect();
    Some(Seconds::from(times?.into_iter().max()?).get().ln())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Three plans whose times differ by these logarithms, with independent noise of each plan.
    fn ensemble(slower: [f64; 2], noise: f64) -> Ensemble {
        let logs = |(name, log): (&str, f64)| {
            deviates(name).take(DRAWS).map(|deviate| log + noise * deviate).collect()
        };
        Ensemble { logs: [("a", 0.0), ("b", slower[0]), ("c", slower[1])].map(logs).into() }
    }

    proptest! {
        /// Some plan is the fastest in each draw; and a plan without regret is always the fastest.
        #[test]
        fn shares_add_up(slower in prop::array::uniform2(0.0f64..0.3), noise in 0.0f64..0.2) {
            let ensemble = ensemble(slower, noise);
            let (shares, losses) = (ensemble.fastest(), ensemble.losses());
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
            for (share, loss) in shares.into_iter().zip(losses) {
                prop_assert!(loss >= 0.0);
                let (always, nothing) = ((share - 1.0).abs() < 1e-9, loss < 1e-12);
                prop_assert_eq!(always, nothing, "{} and {}", share, loss);
            }
        }
    }

    /// Of two plans with normal logarithms, one is faster as often as the normal distribution says.
    #[test]
    fn shares_are_of_the_normal_distribution() {
        let mut ensemble = ensemble([0.1, 0.0], 0.1);
        ensemble.logs.truncate(2);
        let [first, second] = ensemble.fastest()[..] else { panic!("two shares") };
        // Their difference has a standard deviation of 0.1414: 76 % lie below 0.707 of it.
        assert!((first - 0.760).abs() < 0.04, "{first} and {second}");
    }

    /// A plan that occurs twice splits its wins, whatever the others are.
    #[test]
    fn a_plan_twice_shares_what_it_wins() {
        let mut ensemble = ensemble([0.05, 0.1], 0.1);
        let alone = ensemble.fastest();
        ensemble.logs.push(ensemble.logs[0].clone());
        let twice = ensemble.fastest();
        for share in [twice[0], twice[3]] {
            assert!((share - alone[0] / 2.0).abs() < 1e-9, "{twice:?}");
        }
    }
}
