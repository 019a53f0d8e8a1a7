//! Times of the same thing done again and again: the one way in which kernels, copies and collectives are measured.

use std::convert::Infallible;

use burn::tensor::backend::Backend;
use executor_communicators::{CommunicationError, Communicator};
use executor_kernels::clock::now;
use executor_kernels::failure::unless_failed;
use serde::{Deserialize, Serialize};
use traces::statistics::{LOWER_QUARTILE, MEDIAN, quantile};
use traces::timeline::Stream;

/// How often something is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeats {
    /// Runs before those that count.
    pub(crate) warm_ups: u32,
    /// Times that are taken.
    pub(crate) times: u32,
    /// Runs within each, between two waits for the device: more than one where a wait would count much.
    pub(crate) in_a_row: u32,
}

/// Seconds that runs took, in their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// For each run the time of the slowest rank.
    pub(crate) fn slowest(ranks: &[Self]) -> Self {
        let slowest = |one: Self, other: &Self| {
            Self(one.0.into_iter().zip(&other.0).map(|(a, b)| a.max(*b)).collect())
        };
        let (first, others) = ranks.split_first().expect("there is one rank at least");
        others.iter().fold(first.clone(), slowest)
    }

    /// The least: what is reached at best.
    pub(crate) fn least(&self) -> f64 {
        quantile(&self.0, 0.0)
    }

    /// The lower quartile: what it takes while the machine does little else.
    pub(crate) fn lower_quartile(&self) -> f64 {
        quantile(&self.0, LOWER_QUARTILE)
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        quantile(&self.0, MEDIAN)
    }
}

/// What running something came to: its times, and what the last run gave.
pub(crate) struct Measured<T> {
    pub(crate) times: Times,
    pub(crate) last: T,
}

/// Waits until the device has done all that it was given.
pub(crate) fn synchronize<B: Backend>(device: &B::Device) {
    unless_failed(B::sync(device));
}

/// Times `run` until the device has done all of it, each time after `ready`, which does not count.
///
/// # Panics
///
/// If nothing is to be run.
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

/// The same on this rank alone, of what does not fail.
pub(crate) fn alone<B: Backend, T>(
    device: &B::Device,
    repeats: Repeats,
    mut run: impl FnMut() -> T,
) -> Measured<T> {
    let Ok(measured) = measure::<B, _, Infallible>(device, repeats, || Ok(()), || Ok(run()));
    measured
}

/// The same on all ranks, which begin each run together.
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
