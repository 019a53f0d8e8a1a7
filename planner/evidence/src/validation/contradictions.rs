//! Contradictions within a run. If two numbers contradict each other, neither can be trusted.

use ir::layout::Layout;
use ir::units::Bytes;

use super::run::{MeasuredMemory, MeasuredPlan, Unsupported};
use planner_core::problem::Problem;

/// Largest accepted ratio between a step time and the time that follows from a throughput: both are rounded, and logs
/// skip one or two slow steps.
const SAME_TIME: f64 = 1.1;

/// Largest accepted ratio between parameter counts: sources leave out embeddings, or round to the number in the model's
/// name.
const SAME_PARAMETERS: f64 = 1.5;

/// Largest accepted ratio between a GPU's memory and its nominal memory: product names count in 10^9 bytes, and drivers
/// reserve some.
const SAME_CAPACITY: f64 = 1.1;

/// Checks that the batch, the model and the time of a run are consistent.
///
/// # Errors
///
/// The stated number, and the one that follows from the rest of the row.
pub(super) fn check(
    plan: &MeasuredPlan,
    problem: &Problem,
    layout: &Layout,
    step_time_seconds: Option<f64>,
) -> Result<(), Unsupported> {
    let (training, stated) = (&problem.training, &plan.stated);
    if let Some(stated) = stated.n_microbatches
        && stated != u64::from(layout.num_micro_batches)
    {
        return Err(Unsupported::new(format!(
            "it contradicts itself: `n_microbatches` is {stated}, but a batch of {} on {} replicas with {} at a time \
             makes {}",
            training.global_batch_size,
            layout.data_parallel,
            layout.micro_batch_size,
            layout.num_micro_batches
        )));
    }
    let parameters = problem.parameters().total as f64;
    if let Some(stated) = stated.n_params
        && !plan.is_layer
        && differ(stated, parameters, SAME_PARAMETERS)
    {
        return Err(Unsupported::new(format!(
            "it contradicts itself: `n_params` is {:.3} B, but its dimensions make {:.3} B",
            stated / 1e9,
            parameters / 1e9
        )));
    }
    let Some(seconds) = step_time_seconds else { return Ok(()) };
    let sequences = training.global_batch_size as f64;
    let tokens = sequences * training.sequence_length as f64;
    let tokens_per_gpu = tokens / seconds / f64::from(layout.num_gpus());
    for (name, stated, follows) in [
        ("tokens_per_s_per_gpu", stated.tokens_per_s_per_gpu, tokens_per_gpu),
        ("samples_per_s", stated.samples_per_s, sequences / seconds),
    ] {
        if let Some(stated) = stated
            && differ(stated, follows, SAME_TIME)
        {
            return Err(Unsupported::new(format!(
                "it contradicts itself: `{name}` is {stated}, but its step of {seconds} s makes {follows:.4}"
            )));
        }
    }
    Ok(())
}

/// Checks that the measured memory does not exceed that of the GPU.
///
/// # Errors
///
/// The measured memory and that of the GPU.
pub(super) fn check_memory(memory: MeasuredMemory, capacity: Bytes) -> Result<(), Unsupported> {
    if memory.bytes.as_f64() <= capacity.as_f64() * SAME_CAPACITY {
        return Ok(());
    }
    Err(Unsupported::new(format!(
        "it contradicts itself: {} were in use on a GPU of {capacity}",
        memory.bytes
    )))
}

/// Returns whether two positive numbers differ by more than a factor.
fn differ(one: f64, other: f64, factor: f64) -> bool {
    one / other > factor || other / one > factor
}
