//! Training on one rank, on the built-in text, for measurements.

use std::sync::Arc;

use executor_communicators::local;
use executor_kernels::array::Element;
use executor_kernels::ops::Kernels;
use executor_runtime::batches::Source;
use executor_runtime::data::{Samples, Sampling, Tokens};
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::{Parts, Program, ProgramError};
use executor_runtime::rank::{Rank, RunError};
use executor_runtime::settings::{LearningRate, Settings};
use ir::layout::LayoutSpec;
use ir::model::GraphOptions;
use ir::plan::Optimizer;

/// A program of one rank, whose steps are `batch` sequences.
pub(crate) fn program(
    description: String,
    name: &str,
    [batch, sequence_length]: [u64; 2],
    compute: Element,
    learning_rate: f64,
) -> Result<Program, ProgramError> {
    let layout = LayoutSpec { micro_batch_size: batch as u32, ..LayoutSpec::ONE_RANK };
    let settings = Settings {
        schedule: LearningRate::constant(learning_rate),
        ..Settings::usual(Optimizer::AdamW, compute)
    };
    let sizes = [batch, sequence_length];
    let options = GraphOptions::default();
    Program::new(Parts::even(description, name, options, layout, sizes, settings)?)
}

/// The rank that trains the program, with these initial values.
pub(crate) fn rank<B: Kernels>(
    program: Program,
    device: &B::Device,
    values: impl Fn(&LocalParameter) -> Vec<f64>,
) -> Result<Rank<B>, RunError> {
    let sampling = Sampling {
        sequence_length: program.sequence_length,
        vocab_size: program.vocab_size().expect("the models of measurements take tokens"),
        seed: 0,
    };
    let source = Source::Tokens(Samples::new(Tokens::built_in(), sampling)?);
    let communicator = local::communicators::<B>(1, std::slice::from_ref(device)).swap_remove(0);
    let values = |parameter: &LocalParameter| Ok::<_, RunError>(values(parameter));
    Rank::new(Arc::new(program), Arc::new(source), communicator, device.clone(), values)
}
