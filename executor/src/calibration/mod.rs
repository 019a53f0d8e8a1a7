//! Times of this machine's kernels, measured within steps of small models.
//!
//! Each rank trains its own model, and all do so at the same time, so that each has the share of the machine that the
//! others leave. The time of every operator in every pass is taken in place, with the rank's other work around it.
//! Costs are fitted as functions of the quantities that the planner's cost model counts.

mod error;
mod fitting;
mod machine;
mod models;
mod samples;

use std::sync::Arc;

use burn::tensor::TensorData;
use executor_communicators::{Communicator, Reduction};
use executor_kernels::array::{Array, Element};
use executor_kernels::clock::now;
use executor_kernels::ops::Kernels;
use executor_kernels::streams::on_one_stream;
use executor_runtime::training::gather;
use ir::cluster::{KernelTimes, Precision};
use ir::collective::Collective;
use ir::units::Bytes;
use serde::{Deserialize, Serialize};
use traces::collectives::Operation;
use traces::statistics::middle_mean;
use traces::timeline::Stream;

use crate::collectives::GroupOperation;
use crate::measure::{Repeats, synchronize, together};

pub use error::CalibrationRunError;
pub use machine::{Machine, machine};
pub use models::{Effort, TrainedModel};

/// Rates that a rank reaches while all ranks work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Floating-point operations per second of a large product.
    pub flops_per_second: f64,
    /// Bytes read and written per second by a sum of large arrays.
    pub bytes_per_second: f64,
}

/// Times of a step on one rank: those of all laps, of gradients, and of the rest.
#[derive(Debug, Serialize, Deserialize)]
struct StepTimes {
    laps: Vec<f64>,
    gradients: f64,
    rest: f64,
}

/// Fits kernel times in a precision. Only rank 0 gets the result; `observe` is called with each model before it runs.
///
/// # Errors
///
/// [`CalibrationRunError`] where a rank stopped.
pub fn kernel_times<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
    precision: Precision,
    effort: Effort,
    mut observe: impl FnMut(usize, &TrainedModel),
) -> Result<Option<KernelTimes>, CalibrationRunError> {
    let mut all = samples::Samples::default();
    let world = communicator.world();
    for (nth, model) in models::all(effort).iter().enumerate() {
        observe(nth, model);
        let mut rank = model.rank::<B>(device, precision)?;
        let (mut steps, mut laps) = (Vec::new(), Vec::new());
        for step in 0..effort.warm_ups() + effort.steps() {
            communicator.on(&world, Stream::Host).barrier()?;
            let start = now();
            let (_, found) = rank.probed_step()?;
            let whole = start.elapsed().as_secs_f64();
            if step >= effort.warm_ups() {
                let laps: Vec<f64> = found.operators.iter().map(|lap| lap.time).collect();
                let rest = (whole - found.gradients - laps.iter().sum::<f64>()).max(0.0);
                steps.push(StepTimes { laps, gradients: found.gradients, rest });
            }
            laps = found.operators;
        }
        let Some(ranks) = gather(communicator.as_ref(), &steps, device)? else { continue };
        let steps = || ranks.iter().flatten();
        for (index, lap) in laps.iter_mut().enumerate() {
            let times: Vec<f64> =
                steps().filter_map(|step| step.laps.get(index)).copied().collect();
            lap.time = middle_mean(&times);
        }
        let of = |part: fn(&StepTimes) -> f64| middle_mean(&steps().map(part).collect::<Vec<_>>());
        all.add(model, rank.program(), &laps, [of(|step| step.gradients), of(|step| step.rest)]);
    }
    Ok((communicator.rank() == 0).then(|| fitting::times(&all)))
}

/// Rows and columns of the product that measures the peak rate.
const LARGE_PRODUCT: usize = 1024;

/// Elements of the arrays whose sum measures memory bandwidth: more than caches hold.
const LARGE_SUM: usize = 8 << 20;

/// Repetitions of each measurement.
const REPEATS: Repeats = Repeats { warm_ups: 0, times: 6, in_a_row: 1 };

/// Peak rates of each rank while all ranks do the same. Only rank 0 gets the result, which is the slowest rank's.
///
/// # Errors
///
/// [`CalibrationRunError`] where a rank stopped.
pub fn rates<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
    element: Element,
) -> Result<Option<Rates>, CalibrationRunError> {
    let filled = |shape: &[usize]| -> Array<B> {
        let values = vec![1.0f32; shape.iter().product()];
        Array::from_data(TensorData::new(values, shape), device).cast(element)
    };
    // A peak is taken from the minimum time.
    let least = |run: &dyn Fn() -> Array<B>| -> Result<f64, CalibrationRunError> {
        let run = || Ok::<_, CalibrationRunError>(run());
        Ok(together(communicator.as_ref(), device, REPEATS, run)?.times.least())
    };
    let (left, right) =
        (filled(&[LARGE_PRODUCT, LARGE_PRODUCT]), filled(&[LARGE_PRODUCT, LARGE_PRODUCT]));
    let product = least(&|| B::matmul(left.clone(), right.clone()))?;
    let (one, other) = (filled(&[LARGE_SUM]), filled(&[LARGE_SUM]));
    let sum = least(&|| one.clone() + other.clone())?;
    let ranks = gather(communicator.as_ref(), &[product, sum], device)?;
    Ok(ranks.map(|ranks| {
        let slowest = |which: usize| ranks.iter().map(|it| it[which]).fold(0.0, f64::max);
        Rates {
            flops_per_second: 2.0 * (LARGE_PRODUCT as f64).powi(3) / slowest(0),
            bytes_per_second: 3.0 * one.num_bytes() as f64 / slowest(1),
        }
    }))
}

/// Size of the buffer that is reduced overlapped with products: large enough that both take a while.
const REDUCED: Bytes = Bytes::new(16 << 20);

/// Slowdown of kernels by communication of their rank on another thread: the time that products take longer when
/// overlapped with a large all-reduce, as a share of the all-reduce's time. All ranks get the result.
///
/// # Errors
///
/// [`CalibrationRunError`] where a rank stopped.
pub fn slowdown<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
) -> Result<f64, CalibrationRunError> {
    let world = communicator.world();
    let size = LARGE_PRODUCT / 2;
    let matrix = Array::<B>::ones(&[size, size], Element::F32, device);
    let buffer = Array::<B>::ones(&[REDUCED.get() as usize / 4], Element::F32, device);
    let products = |count: usize| {
        for _ in 0..count {
            drop(B::matmul(matrix.clone(), matrix.clone()));
            synchronize::<B>(device);
        }
        Ok(())
    };
    let exchange = || -> Result<(), CalibrationRunError> {
        let operation = Operation::Collective(Collective::AllReduce);
        let reduction = Reduction::Sum;
        let call = GroupOperation {
            communicator: communicator.as_ref(),
            group: &world,
            operation,
            reduction,
        };
        call.run(Some(buffer.clone()))?;
        synchronize::<B>(device);
        Ok(())
    };
    let timed = |run: &dyn Fn() -> Result<(), CalibrationRunError>| {
        let times = together(communicator.as_ref(), device, REPEATS, run)?.times;
        Ok::<_, CalibrationRunError>(times.lower_quartile())
    };
    let alone = timed(&exchange)?;
    let one = timed(&|| products(1))?;
    // Products that take three times as long as the exchange, so that the exchange ends while they run.
    let count = told_by_first(communicator, device, (3.0 * alone / one).ceil().max(1.0))? as usize;
    let computed = timed(&|| products(count))?;
    let both = timed(&|| {
        std::thread::scope(|scope| {
            let exchanging = scope.spawn(|| on_one_stream(exchange));
            products(count)?;
            exchanging.join().expect("an exchange does not panic")
        })
    })?;
    let share = ((both - computed) / alone).clamp(0.0, LARGEST_SLOWDOWN);
    told_by_first(communicator, device, share)
}

/// Limit of the slowdown: kernels never stop entirely.
const LARGEST_SLOWDOWN: f64 = 0.98;

/// The value of rank 0, on all ranks.
fn told_by_first<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
    value: f64,
) -> Result<f64, CalibrationRunError> {
    let world = communicator.world();
    let own = Array::from_f64(vec![value], &[1], Element::F32, device);
    let own = (communicator.rank() == 0).then_some(own);
    Ok(communicator.on(&world, Stream::Host).broadcast(0, own)?.item())
}
