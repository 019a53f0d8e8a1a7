//! What this machine's kernels take, measured within steps of small models.
//!
//! All ranks train models of their own at once, so that each has what is left to it while the others work.
//! The time of every operator in every pass is taken where it runs, with what its rank does around it, and
//! costs of a few quantities are fitted to them: those that the planner's cost model counts.

mod error;
mod fitting;
mod machine;
mod models;
mod samples;

use std::sync::Arc;

use burn::tensor::TensorData;
use ir::cluster::{KernelTimes, Precision};
use ir::collective::Collective;
use ir::units::Bytes;
use serde::{Deserialize, Serialize};
use traces::collectives::Operation;
use traces::timeline::Stream;

use crate::array::{Array, Element};
use crate::clock::now;
use crate::collectives::{Call, CollectiveError, synchronize};
use crate::communicator::{Communicator, Group, Reduction, local};
use crate::ops::Kernels;
use crate::statistics::{LOWER_QUARTILE, middle_mean, quantile};
use crate::streams::on_one_stream;
use crate::training::gather_text;

pub use error::CalibrationError;
pub use machine::{Machine, machine};
pub use models::{Effort, TrainedModel};

/// What a rank reaches while all ranks work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Operations of a large product in a second.
    pub flops_per_second: f64,
    /// Bytes read and written in a second by a sum of large arrays.
    pub bytes_per_second: f64,
}

/// What one rank tells of a model: for each step, the times of all laps, of gradients and of the rest.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    steps: Vec<(Vec<f64>, f64, f64)>,
}

/// What kernels take in a precision. Rank 0 alone is told; `observe` is told each model before its turn.
///
/// # Errors
///
/// [`CalibrationError`] where a rank stopped.
pub fn kernel_times<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
    precision: Precision,
    effort: Effort,
    mut observe: impl FnMut(usize, &TrainedModel),
) -> Result<Option<KernelTimes>, CalibrationError> {
    let mut all = samples::Samples::default();
    let world = Group::new((0..communicator.num_ranks()).collect::<Vec<_>>());
    for (nth, model) in models::all(effort).iter().enumerate() {
        observe(nth, model);
        let alone = local::communicators::<B>(1, std::slice::from_ref(device)).swap_remove(0);
        let mut rank = model.rank::<B>(alone, device.clone(), precision)?;
        let mut told = Told { steps: Vec::new() };
        let mut laps = Vec::new();
        for step in 0..effort.warm_ups() + effort.steps() {
            communicator.barrier(&world, Stream::Host)?;
            let start = now();
            let (_, found) = rank.probed_step()?;
            let whole = start.elapsed().as_secs_f64();
            if step >= effort.warm_ups() {
                let times: Vec<f64> = found.operators.iter().map(|lap| lap.time).collect();
                let rest = whole - found.gradients - times.iter().sum::<f64>();
                told.steps.push((times, found.gradients, rest.max(0.0)));
            }
            laps = found.operators;
        }
        let texts = gather_text(
            communicator.as_ref(),
            &serde_json::to_string(&told).expect("numbers print as JSON"),
            device,
        )?;
        let Some(texts) = texts else { continue };
        let ranks: Vec<Told> = texts
            .iter()
            .enumerate()
            .map(|(rank, text)| {
                serde_json::from_str(text)
                    .map_err(|error| CollectiveError::Garbled { rank, message: error.to_string() })
            })
            .collect::<Result<_, _>>()?;
        let steps = || ranks.iter().flat_map(|rank| &rank.steps);
        for (index, lap) in laps.iter_mut().enumerate() {
            let times: Vec<f64> = steps().filter_map(|step| step.0.get(index)).copied().collect();
            lap.time = middle_mean(&times);
        }
        let of = |part: fn(&(Vec<f64>, f64, f64)) -> f64| {
            middle_mean(&steps().map(part).collect::<Vec<_>>())
        };
        all.add(model, rank.program(), &laps, [of(|step| step.1), of(|step| step.2)]);
    }
    Ok((communicator.rank() == 0).then(|| fitting::times(&all)))
}

/// Rows and columns of the product that the peak is measured with.
const LARGE_PRODUCT: usize = 1024;

/// Elements of the arrays whose sum memory is measured with: more than caches hold.
const LARGE_SUM: usize = 8 << 20;

/// How often each is done; the fastest counts, as a peak is what is reached at best.
const REPEATS: usize = 6;

/// What each rank reaches at best while all ranks do the same. Rank 0 alone is told, of the slowest rank.
///
/// # Errors
///
/// [`CalibrationError`] where a rank stopped.
pub fn rates<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
    element: Element,
) -> Result<Option<Rates>, CalibrationError> {
    let world = Group::new((0..communicator.num_ranks()).collect::<Vec<_>>());
    let filled = |shape: &[usize]| -> Array<B> {
        let values = vec![1.0f32; shape.iter().product()];
        Array::from_data(TensorData::new(values, shape), device).cast(element)
    };
    let least = |run: &dyn Fn() -> Array<B>| -> Result<f64, CalibrationError> {
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            communicator.barrier(&world, Stream::Host)?;
            let start = now();
            let result = run();
            synchronize::<B>(device);
            times.push(start.elapsed().as_secs_f64());
            drop(result);
        }
        Ok(quantile(&times, 0.0))
    };
    let (left, right) =
        (filled(&[LARGE_PRODUCT, LARGE_PRODUCT]), filled(&[LARGE_PRODUCT, LARGE_PRODUCT]));
    let product = least(&|| B::matmul(left.clone(), right.clone()))?;
    let (one, other) = (filled(&[LARGE_SUM]), filled(&[LARGE_SUM]));
    let sum = least(&|| one.clone() + other.clone())?;
    let told = Array::from_f64(vec![product * 1e6, sum * 1e6], &[2], Element::F32, device);
    let slowest = communicator.all_reduce(&world, Stream::Host, told, Reduction::Max)?.to_f64();
    let operations = 2.0 * (LARGE_PRODUCT as f64).powi(3);
    let bytes = 3.0 * one.num_bytes() as f64;
    Ok((communicator.rank() == 0).then(|| Rates {
        flops_per_second: operations / (slowest[0] * 1e-6),
        bytes_per_second: bytes / (slowest[1] * 1e-6),
    }))
}

/// A buffer that is reduced beside products: large enough that both take a while.
const REDUCED: Bytes = Bytes::new(16 << 20);

/// By what share kernels run slower while their rank exchanges data on another thread: of the time of a
/// large all-reduce, what products beside it take longer. All ranks are told.
///
/// # Errors
///
/// [`CalibrationError`] where a rank stopped.
pub fn slowdown<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
) -> Result<f64, CalibrationError> {
    let world = Group::new((0..communicator.num_ranks()).collect::<Vec<_>>());
    let size = LARGE_PRODUCT / 2;
    let matrix = Array::<B>::ones(&[size, size], Element::F32, device);
    let buffer = Array::<B>::ones(&[REDUCED.get() as usize / 4], Element::F32, device);
    let products = |count: usize| {
        for _ in 0..count {
            drop(B::matmul(matrix.clone(), matrix.clone()));
            synchronize::<B>(device);
        }
    };
    let exchange = || -> Result<(), CalibrationError> {
        let operation = Operation::Collective(Collective::AllReduce);
        let reduction = Reduction::Sum;
        let call =
            Call { communicator: communicator.as_ref(), group: &world, operation, reduction };
        call.run(Some(buffer.clone()))?;
        synchronize::<B>(device);
        Ok(())
    };
    let timed = |run: &mut dyn FnMut() -> Result<(), CalibrationError>| {
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            communicator.barrier(&world, Stream::Host)?;
            let start = now();
            run()?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok::<f64, CalibrationError>(quantile(&times, LOWER_QUARTILE))
    };
    let alone = timed(&mut || exchange())?;
    let one = timed(&mut || {
        products(1);
        Ok(())
    })?;
    // Three times as long as the exchange, which so lies within.
    let count = told_by_first(communicator, device, (3.0 * alone / one).ceil().max(1.0))? as usize;
    let computed = timed(&mut || {
        products(count);
        Ok(())
    })?;
    let both = timed(&mut || {
        std::thread::scope(|scope| {
            let exchanging = scope.spawn(|| on_one_stream(exchange));
            products(count);
            exchanging.join().expect("an exchange does not panic")
        })
    })?;
    let share = ((both - computed) / alone).clamp(0.0, LARGEST_SLOWDOWN);
    told_by_first(communicator, device, share)
}

/// Kernels always go on a little.
const LARGEST_SLOWDOWN: f64 = 0.98;

/// What rank 0 has.
fn told_by_first<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
    value: f64,
) -> Result<f64, CalibrationError> {
    let world = Group::new((0..communicator.num_ranks()).collect::<Vec<_>>());
    let own = Array::from_f64(vec![value], &[1], Element::F32, device);
    let own = (communicator.rank() == 0).then_some(own);
    Ok(communicator.broadcast(&world, Stream::Host, 0, own)?.item())
}
