//! Limits that are checked before a run: data and memory.

use anyhow::{bail, ensure};
use executor::calibration::machine;
use executor_kernels::array::ElementExt;
use executor_runtime::batches::Source;
use executor_runtime::data::{Samples, Sampling, SyntheticSamples, Tokens};
use executor_runtime::program::Program;
use ir::graph::{ShapeCounts, WeightFormat};
use ir::plan::Plan;
use ir::schedule::Updates;
use ir::units::{Bytes, Seconds};

use super::args::RunArgs;

/// Number of tokens that are compared with the vocabulary before a run, which takes some milliseconds; later tokens are
/// compared at their step.
const CHECKED_TOKENS: u64 = 1 << 22;

/// The training data of the model, and a warning where a step has some samples more than once.
///
/// # Errors
///
/// There are too few samples for a step, or tokens beyond the model's vocabulary.
pub(super) fn source(
    args: &RunArgs,
    program: &Program,
) -> anyhow::Result<(Source, Option<String>)> {
    let Some(vocab_size) = program.vocab_size() else {
        if let Some(data) = &args.data {
            bail!(
                "`--data {}`: `{}` takes no tokens\nhint: leave it out to train on made-up samples",
                data.display(),
                program.model_name
            );
        }
        return Ok((Source::Synthetic(SyntheticSamples { seed: args.seed }), None));
    };
    let tokens = match &args.data {
        Some(path) => Tokens::open(path)?,
        None => Tokens::built_in(),
    };
    let (name, num_tokens) = (tokens.name().to_owned(), tokens.num_tokens());
    let sequence_length = program.sequence_length;
    let sampling = Sampling { sequence_length, vocab_size, seed: args.seed };
    let samples = Samples::new(tokens, sampling)?;
    let (width, batch) = (sequence_length.saturating_add(1), program.global_batch_size);
    let found = samples.num_windows();
    let mut warning = None;
    if found < batch {
        let short = format!(
            "`{name}` has {num_tokens} tokens, which are {found} samples of {width}, but a step takes {batch}"
        );
        ensure!(
            args.data.is_none(),
            "{short}\nhint: use at least {} tokens, or a plan with a global batch size of {found} or less",
            width.saturating_mul(batch)
        );
        warning = Some(format!("{short}: some come again; `--data FILE` has others"));
    }
    let used = args.steps.saturating_mul(batch).min(found);
    for index in 0..used.min(CHECKED_TOKENS.div_ceil(width)) {
        samples.window(index)?;
    }
    Ok((Source::Tokens(samples), warning))
}

/// Approximate operations per second of a core: half the rate of one with AVX-512 in fp32 products.
const OPERATIONS_OF_A_CORE: f64 = 5e10;

/// Time of a step from which a warning is printed, in seconds.
const LONG_STEP: f64 = 30.0;

/// A warning if a step will take long on this machine's cores.
pub(super) fn long_step(program: &Program) -> Option<String> {
    let operations = program.operations_per_step().get();
    let cores = machine().cores;
    let seconds = operations / (OPERATIONS_OF_A_CORE * f64::from(cores));
    (seconds > LONG_STEP).then(|| {
        let time = Seconds::new(seconds);
        let plural = if cores == 1 { "" } else { "s" };
        format!(
            "a step has {operations:.1e} operations: some {time} on {cores} core{plural}; a plan with a smaller \
             `--seq-len` or `--global-batch-size` has less to do"
        )
    })
}

/// A warning if all ranks together are expected to need more than this machine's memory.
pub(super) fn much_memory(plan: &Plan, there: Bytes) -> Option<String> {
    let memory = &plan.prediction.memory;
    // Memory that a device's libraries and allocator take in addition to tensors.
    let beside = memory.context_bytes + memory.allocator_bytes;
    let of_rank = plan.prediction.peak_memory_bytes.saturating_sub(beside);
    let all = Bytes::new(of_rank.get().saturating_mul(plan.num_gpus.into()));
    (all > there).then(|| {
        format!(
            "{} ranks of up to {of_rank}, by the plan, take up to {all}, but this machine has {there} of memory; a plan \
             with a smaller `--micro-batch-size`, or for fewer GPUs, takes less",
            plan.num_gpus
        )
    })
}

/// Memory of this machine, swap included, where it is known.
pub(super) fn memory() -> Option<Bytes> {
    let machine = machine();
    machine.memory.map(|memory| memory + machine.swap)
}

/// Refuses a model if not even one copy of it fits in this machine's memory.
///
/// # Errors
///
/// The memory that the model needs, and the memory of the machine.
pub(super) fn check_memory(plan: &Plan, program: &Program) -> anyhow::Result<()> {
    let held = [program.settings.master, program.settings.moments];
    let [weight, moment] = held.map(ElementExt::num_bytes);
    let per_parameter =
        weight + plan.training.optimizer.num_moments(1, ShapeCounts::default()) * moment;
    let trained = program.num_trained_parameters();
    let frozen = plan.model.num_parameters - trained;
    let format = plan.model.adapters.as_ref().map_or(WeightFormat::Plain, |it| it.base_weights);
    let frozen = format.bytes(1, frozen, program.settings.compute.num_bytes());
    // Where each micro-batch updates the weights, gradients are transient.
    let gradient = match program.schedule.updates() {
        Updates::AfterFlush => program.settings.gradients.num_bytes(),
        Updates::AfterEachMicroBatch => 0,
    };
    let needed = Bytes::new(trained.saturating_mul(per_parameter + gradient)) + frozen;
    match memory() {
        Some(there) if needed > there => bail!(
            "weights, gradients and optimizer state of `{}` take {needed} for its {} parameters, but this machine \
             has {there} of memory\nhint: run a smaller model here, or this one on machines that have it",
            program.model_name,
            plan.model.num_parameters
        ),
        _ => Ok(()),
    }
}
