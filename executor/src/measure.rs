//! Repeated timing: the one way in which kernels, copies and collectives are measured.

use std::convert::Infallible;

use burn::tensor::backend::Backend;
use executor_communicators::{CommunicationError, Communicator};
use executor_kernels::clock::now;
use executor_kernels::failure::unless_failed;
use serde::{Deserialize, Serialize};
use traces::statistics::{LOWER_QUARTILE, MEDIAN, quantile};
use traces::timeline::Stream;

/// Number of repetitions of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeats {
    /// Runs before the timed ones.
    pub(crate) warm_ups: u32,
    /// Number of times that are taken.
    pub(crate) times: u32,
    /// Runs in each time, between two waits for the device: more than one where a wait would weigh much.
    pub(crate) in_a_row: u32,
}

/// Times of runs in seconds, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// For each run, the time of the slowest rank.
    pub(crate) fn slowest(ranks: &[Self]) -> Self {
        let slowest = |one: Self, other: &Self| {
            Self(one.0.into_iter().zip(&other.0).map(|(a, b)| a.max(*b)).collect())
        };
        let (first, others) = ranks.split_first().expect("there is one rank at least");
        others.iter().fold(first.clone(), slowest)
    }

    /// The minimum time.
    pub(crate) fn least(&self) -> f64 {
        quantile(&self.0, 0.0)
    }

    /// The lower quartile: the time with little disturbance by other work of the machine.
    pub(crate) fn lower_quartile(&self) -> f64 {
        quantile(&self.0, LOWER_QUARTILE)
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        quantile(&self.0, MEDIAN)
    }
}

/// Result of a measurement: the times, and the value of the last run.
pub(crate) struct Measured<T> {
    pub(crate) times: Times,
    pub(crate) last: T,
}

/// Waits until the device is idle.
pub(crate) fn synchronize<B: Backend>(device: &B::Device) {
    unless_failed(B::sync(device));
}

/// Times `run` until the device is idle, after an untimed call of `ready` each time.
///
/// # Panics
///
/// If the number of runs is zero.
pub(crate) fn measure<B: Backend, T, E>(
    device: &B::Device,
    repeats: Repeats,
    mut ready: impl FnMut() -> Result<(), E>,
    mut run: impl FnMut() -> Result<T, E>,
) -> Result<Measured<T>, E> {
    let mut times = Vec::new();
    let mut last = None;
    for nth in 0..repeats.warm_ups + repeats.times {
        let counts = nth >= repeats.warm_ups;
        ready()?;
        let start = now();
        for _ in 0..if counts { repeats.in_a_row } else { 1 } {
            drop(last.take());
            last = Some(run()?);
        }
        synchronize::<B>(device);
        if counts {
            times.push(start.elapsed().as_secs_f64() / f64::from(repeats.in_a_row));
        }
    }
    Ok(Measured { times: Times(times), last: last.expect("something is run") })
}

/// [`measure`] on one rank, of a function that does not fail.
pub(crate) fn alone<B: Backend, T>(
    device: &B::Device,
    repeats: Repeats,
    mut run: impl FnMut() -> T,
) -> Measured<T> {
    let Ok(measured) = measure::<B, _, Infallible>(device, repeats, || Ok(()), || Ok(run()));
    measured
}

/// [`measure`] on all ranks, which begin each run together.
pub(crate) fn together<B: Backend, T, E: From<CommunicationError>>(
    communicator: &dyn Communicator<B>,
    device: &B::Device,
    repeats: Repeats,
    run: impl FnMut() -> Result<T, E>,
) -> Result<Measured<T>, E> {
    let world = communicator.world();
    let ready = || Ok(communicator.on(&world, Stream::Host).barrier()?);
    measure::<B, _, E>(device, repeats, ready, run)
}
