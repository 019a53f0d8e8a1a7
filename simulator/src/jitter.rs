//! Steps with random speeds of GPUs, reproducible by seed.

use ir::schedule::Schedule;
use ir::units::Nanos;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rayon::prelude::*;

use crate::error::SimulationError;
use crate::order::{Order, RankOp};
use crate::play::{Observer, play};
use crate::work::{Run, StepWork};

/// Random slowdown of passes and GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Standard deviation of the time of a pass or an update on a GPU, as a share of that time. Deviations are normally
    /// distributed, and independent for each pass or update.
    pub deviation: f64,
    /// Share of GPUs that are slow throughout a step.
    pub straggler_share: f64,
    /// Excess of a slow GPU's time, as a share of its usual time.
    pub straggler_excess: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Numbers of GPUs that wait for each other, and of whole pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Number of GPUs of a pipeline rank that exchange data within each pass, so that the slowest sets the pace: tensor
    /// and context parallelism.
    pub gpus_per_rank: u32,
    /// Number of pipelines in parallel, which wait for each other when gradients are reduced.
    pub pipelines: u32,
}

/// Times of steps, shortest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    times: Vec<Nanos>,
}

impl Distribution {
    /// All times, shortest first.
    pub fn times(&self) -> &[Nanos] {
        &self.times
    }

    /// The time that a share of the steps, from 0 to 1, does not exceed; zero where there are none.
    pub fn quantile(&self, share: f64) -> Nanos {
        let last = self.times.len().saturating_sub(1);
        let index = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
        self.times.get(index).copied().unwrap_or_default()
    }

    /// Mean of the times, rounded down; zero where there are none.
    pub fn mean(&self) -> Nanos {
        let sum: u128 = self.times.iter().map(|time| u128::from(time.get())).sum();
        Nanos::new((sum / (self.times.len() as u128).max(1)) as u64)
    }
}

/// Draws `num_samples` steps: in each, every pipeline runs its schedule at the speed of the slowest GPU of each rank,
/// and the step ends with the last pipeline.
///
/// `observe` is called after each step, from the threads that draw them.
///
/// Each step and pipeline has its own random numbers, so the result does not depend on the number of threads. The
/// slowest of `n` GPUs is drawn directly: if `u` is uniform, the largest of `n` normal deviates is distributed as the
/// quantile of `u^(1/n)`.
///
/// # Errors
///
/// As [`simulate`](crate::simulate).
pub fn sample_steps(
    schedule: &Schedule,
    work: &StepWork,
    replicas: Replicas,
    jitter: &Jitter,
    num_samples: u32,
    observe: &(dyn Fn() + Sync),
) -> Result<Distribution, SimulationError> {
    let order = Order::new(schedule);
    let pipelines = u64::from(replicas.pipelines.max(1));
    let step = |sample: u64| -> Result<Nanos, SimulationError> {
        let mut end = Nanos::ZERO;
        for pipeline in 0..pipelines {
            let mut rng = ChaCha8Rng::seed_from_u64(jitter.seed);
            rng.set_stream(sample * pipelines + pipeline);
            let mut pace = Pace::new(work, replicas.gpus_per_rank, jitter, rng);
            end = end.max(play(&order, work, &mut pace)?.end);
        }
        observe();
        Ok(end)
    };
    let times: Result<Vec<Nanos>, SimulationError> =
        (0..u64::from(num_samples)).into_par_iter().map(step).collect();
    let mut times = times?;
    times.sort_unstable();
    Ok(Distribution { times })
}

/// The time of a step in which one pipeline rank takes `factor` times as long for its passes.
///
/// # Errors
///
/// As [`simulate`](crate::simulate).
pub fn straggling_step(
    schedule: &Schedule,
    work: &StepWork,
    pipeline_rank: usize,
    factor: f64,
) -> Result<Nanos, SimulationError> {
    let order = Order::new(schedule);
    Ok(play(&order, work, &mut Straggling { pipeline_rank, factor })?.end)
}

/// Observer that slows down the passes of one rank.
struct Straggling {
    pipeline_rank: usize,
    factor: f64,
}

impl Observer for Straggling {
    fn pace(&mut self, rank: usize, op: &RankOp, run: Run) -> Run {
        if rank == self.pipeline_rank && op.kind.is_compute() {
            longer(run, self.factor)
        } else {
            run
        }
    }
}

/// A run that takes `factor` times as long.
fn longer(run: Run, factor: f64) -> Run {
    let longer = |time: Nanos| Nanos::new((time.as_f64() * factor).round() as u64);
    Run { time: longer(run.time), kernels: longer(run.kernels), ..run }
}

/// Observer that slows down each rank, and each of its actions.
struct Pace<'a> {
    jitter: &'a Jitter,
    gpus_per_rank: f64,
    rng: ChaCha8Rng,
    /// Factor by which each rank is slower throughout.
    ranks: Vec<f64>,
    /// Factor by which the last action of each rank is slower.
    actions: Vec<f64>,
}

impl<'a> Pace<'a> {
    fn new(work: &StepWork, gpus_per_rank: u32, jitter: &'a Jitter, mut rng: ChaCha8Rng) -> Self {
        let n = f64::from(gpus_per_rank.max(1));
        let none_slow = (1.0 - jitter.straggler_share).powf(n);
        let factor = |_| {
            if uniform(&mut rng) < none_slow { 1.0 } else { 1.0 + jitter.straggler_excess }
        };
        let ranks: Vec<f64> = work.ranks.iter().map(factor).collect();
        Self { jitter, gpus_per_rank: n, rng, actions: ranks.clone(), ranks }
    }
}

impl Observer for Pace<'_> {
    fn begins(&mut self, rank: usize, _op: &RankOp, _now: Nanos, _waited_for: Option<u32>) {
        let slowest = normal_quantile(uniform(&mut self.rng).powf(1.0 / self.gpus_per_rank));
        let deviation = (1.0 + self.jitter.deviation * slowest).max(0.0);
        self.actions[rank] = self.ranks[rank] * deviation;
    }

    fn pace(&mut self, rank: usize, _op: &RankOp, run: Run) -> Run {
        longer(run, self.actions[rank])
    }
}

/// Standard normal deviates, reproducible by seed.
pub fn normal_deviates(seed: u64) -> impl Iterator<Item = f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    std::iter::repeat_with(move || normal_quantile(uniform(&mut rng)))
}

/// Uniform deviates between 0 and 1, both excluded, reproducible by seed.
pub fn uniform_deviates(seed: u64) -> impl Iterator<Item = f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    std::iter::repeat_with(move || uniform(&mut rng))
}

/// A uniform random number between 0 and 1, both excluded.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    // The 53 bits of a float's mantissa, in the middle of their interval.
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// The number that a standard normal deviate does not exceed with `probability`, to nine digits.
///
/// # Source
///
/// Acklam 2003, *An algorithm for computing the inverse normal cumulative distribution function*;
/// relative error below 1.15e-9.
fn normal_quantile(probability: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    /// Probability below which the tail has its own rational approximation.
    const TAIL: f64 = 0.024_25;
    let polynomial = |coefficients: &[f64], x: f64| {
        coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
    };
    let tail = |probability: f64| {
        let q = (-2.0 * probability.ln()).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    if probability < TAIL {
        tail(probability)
    } else if probability > 1.0 - TAIL {
        -tail(1.0 - probability)
    } else {
        let q = probability - 0.5;
        q * polynomial(&A, q * q) / polynomial(&B, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles from tables of the normal distribution.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, quantile) in
            [(0.5, 0.0), (0.841_344_746, 1.0), (0.975, 1.959_964), (0.001, -3.090_232)]
        {
            assert!((normal_quantile(probability) - quantile).abs() < 1e-6, "{probability}");
        }
    }
}
