//! Some steps of training under layouts, of the small models that `executor check` trains too.

use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::Communicator;
use executor_kernels::array::Element;
use executor_kernels::ops::Kernels;
use executor_runtime::case;
use executor_runtime::checkpoint::{Piece, PieceKind};
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::{Parts, Program};
use executor_runtime::rank::{Rank, RunError, StepResult};

pub(crate) use executor_runtime::case::{GPT, LLAMA, LayoutCase, MIXTRAL, NUM_STEPS, ONE};

pub(crate) fn program(model: &str, case: LayoutCase, compute: Element) -> Program {
    Program::new(parts(model, case, compute)).unwrap()
}

pub(crate) fn parts(model: &str, case: LayoutCase, compute: Element) -> Parts {
    case::parts(model, case, compute).unwrap()
}

/// The steps of a rank, and its pieces of the weights with their values.
pub(crate) type Outcome = (Vec<StepResult>, Vec<(Piece, Vec<f64>)>);

/// The steps of a rank on the CPU, and what it holds of the weights afterwards.
pub(crate) fn steps(
    program: &Arc<Program>,
    communicator: Arc<dyn Communicator<Flex>>,
) -> Result<Outcome, RunError> {
    stepped(rank(program, communicator)?)
}

/// The steps of a rank, and what it holds of the weights afterwards.
pub(crate) fn stepped<B: Kernels>(mut rank: Rank<B>) -> Result<Outcome, RunError> {
    let results = (0..NUM_STEPS).map(|_| rank.step()).collect::<Result<Vec<_>, _>>()?;
    rank.settle()?;
    let pieces = rank.pieces().into_iter();
    Ok((results, pieces.filter(|(piece, _)| piece.kind == PieceKind::Weight).collect()))
}

/// A rank on the CPU that has done no steps.
pub(crate) fn rank(
    program: &Arc<Program>,
    communicator: Arc<dyn Communicator<Flex>>,
) -> Result<Rank<Flex>, RunError> {
    rank_on(program, communicator, FlexDevice)
}

/// The same on a device.
pub(crate) fn rank_on<B: Kernels>(
    program: &Arc<Program>,
    communicator: Arc<dyn Communicator<B>>,
    device: B::Device,
) -> Result<Rank<B>, RunError> {
    let source = case::source(program).unwrap();
    let seed = program.settings.seed;
    let values = |parameter: &LocalParameter| Ok::<_, RunError>(parameter.initial_values(seed));
    Rank::new(Arc::clone(program), Arc::new(source), communicator, device, values)
}
