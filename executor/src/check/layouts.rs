//! Comparison of layouts with one rank in fp64 on the CPU, by the losses of some steps of small models.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_kernels::clock::Deadline;
use executor_kernels::comparison::error;
use executor_kernels::ops::Kernels;
use executor_runtime::case::{GPT, LLAMA, LayoutCase, MIXTRAL, NUM_STEPS, ONE, parts, source};
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::{Program, ProgramError};
use executor_runtime::rank::{Rank, RunError};
use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use super::finding::{CheckFinding, caught, first_line};

/// Largest error of losses in fp32 against fp64.
const TOLERANCE: f64 = 1e-4;

/// The layouts that are compared: the name, the model that is trained, and the layout.
pub const LAYOUTS: &[(&str, &str, LayoutCase)] = &[
    ("one rank", LLAMA, ONE),
    ("one rank, layers computed again", GPT, LayoutCase { recompute: Recompute::Full, ..ONE }),
    ("tp2, sequence parallel", LLAMA, LayoutCase { tensor: 2, sequence: true, ..ONE }),
    ("pp2, 1f1b", GPT, LayoutCase { pipeline: 2, ..ONE }),
    (
        "pp2-vpp2, zero bubble in a V",
        LLAMA,
        LayoutCase { pipeline: 2, virtual_stages: 2, schedule: ScheduleKind::Zbv, ..ONE },
    ),
    ("dp2", LLAMA, LayoutCase { data: 2, ..ONE }),
    ("dp2, ZeRO-1", LLAMA, LayoutCase { data: 2, zero: ZeroStage::OptimizerState, ..ONE }),
    ("dp2, ZeRO-2", LLAMA, LayoutCase { data: 2, zero: ZeroStage::Gradients, ..ONE }),
    ("dp2, ZeRO-3", LLAMA, LayoutCase { data: 2, zero: ZeroStage::Parameters, ..ONE }),
    ("cp2, a ring", LLAMA, LayoutCase { context: 2, micro_batch_size: 2, ..ONE }),
    (
        "cp2, exchange of heads",
        LLAMA,
        LayoutCase {
            context: 2,
            context_kind: ContextParallelKind::AllToAll,
            micro_batch_size: 2,
            ..ONE
        },
    ),
    ("ep2-dp2", MIXTRAL, LayoutCase { expert: 2, data: 2, micro_batch_size: 2, ..ONE }),
    (
        "tp2-pp2, interleaved, vpp2",
        LLAMA,
        LayoutCase {
            tensor: 2,
            pipeline: 2,
            virtual_stages: 2,
            schedule: ScheduleKind::Interleaved,
            ..ONE
        },
    ),
    (
        "tp2-pp2-dp2, ZeRO-1",
        LLAMA,
        LayoutCase {
            tensor: 2,
            sequence: true,
            pipeline: 2,
            data: 2,
            zero: ZeroStage::OptimizerState,
            ..ONE
        },
    ),
    (
        "tp2-cp2-dp2, ZeRO-3",
        LLAMA,
        LayoutCase { tensor: 2, context: 2, data: 2, zero: ZeroStage::Parameters, ..ONE },
    ),
];

/// Trains under every layout, with its ranks as threads on `devices`, and compares losses with those of one rank.
pub fn layouts<B: Kernels>(
    devices: &[B::Device],
    deadline: Deadline,
    found: &mut dyn FnMut(CheckFinding),
) {
    let mut exact = Exact::default();
    for (name, model, case) in LAYOUTS {
        if deadline.is_over() {
            found(CheckFinding::out_of_time(*name));
            continue;
        }
        let num_ranks = case.num_ranks();
        let where_it_runs = match (num_ranks, devices.len()) {
            (1, _) => "1 rank".to_owned(),
            (_, 1) => format!("{num_ranks} ranks on 1 device"),
            (_, count) => format!("{num_ranks} ranks on {} devices", count.min(num_ranks as usize)),
        };
        let actual = losses::<B>(model, *case, Element::F32, devices);
        found(exact.hold(name, model, &where_it_runs, actual));
    }
}

/// [`layouts`] for the layouts with as many ranks as `communicator`; only rank 0 reports. Before each layout, every
/// rank calls `goes_on`, whose answer must be the same on all ranks, so that they end together.
///
/// # Errors
///
/// [`RunError`] where this rank, or another, has failed.
pub fn layouts_of_ranks<B: Kernels>(
    communicator: &Arc<dyn Communicator<B>>,
    device: &B::Device,
    goes_on: &mut dyn FnMut() -> bool,
    found: &mut dyn FnMut(CheckFinding),
) -> Result<(), RunError> {
    let num_ranks = communicator.num_ranks();
    let mut exact = Exact::default();
    for (name, model, case) in LAYOUTS.iter().filter(|(.., case)| case.num_ranks() == num_ranks) {
        if !goes_on() {
            if communicator.rank() == 0 {
                found(CheckFinding::out_of_time(*name));
            }
            continue;
        }
        let actual = match program(model, *case, Element::F32) {
            Ok(program) => Ok(of_rank(&program, Arc::clone(communicator), device.clone())?),
            Err(error) => Err(error.to_string()),
        };
        if communicator.rank() == 0 {
            let where_it_runs = format!("{num_ranks} processes");
            found(exact.hold(name, model, &where_it_runs, actual));
        }
    }
    Ok(())
}

/// Losses of one rank in fp64 on the CPU, by model.
#[derive(Default)]
struct Exact(BTreeMap<&'static str, Vec<f64>>);

impl Exact {
    fn hold(
        &mut self,
        name: &str,
        model: &'static str,
        where_it_runs: &str,
        actual: Result<Vec<f64>, String>,
    ) -> CheckFinding {
        let expected = match self.0.get(model) {
            Some(losses) => Ok(losses.clone()),
            None => losses::<Flex>(model, ONE, Element::F64, &[FlexDevice]),
        };
        let failed = |error: &str| {
            let said = format!("{where_it_runs}: {}", first_line(error));
            CheckFinding::fail(name, said, "report it with the whole of what `--only layouts` says")
        };
        let (actual, expected) = match (actual, expected) {
            (Ok(actual), Ok(expected)) => (actual, expected),
            (Err(error), _) | (_, Err(error)) => return failed(&error),
        };
        self.0.insert(model, expected.clone());
        let pairs = actual.iter().zip(&expected);
        let largest = pairs.map(|(a, b)| error(*a, *b)).fold(0.0, f64::max);
        let [first, last] =
            [actual.first(), actual.last()].map(|it| it.copied().unwrap_or(f64::NAN));
        let said = format!(
            "{where_it_runs}, loss {first:.4} to {last:.4}, off by {largest:.1e} of {TOLERANCE:.0e}"
        );
        let hint =
            "where one rank is right too, ranks use each other's arrays too early: report it";
        let finding = CheckFinding::judged(name, said, largest <= TOLERANCE, hint);
        finding.with("largest_error", largest).with("first_loss", first).with("last_loss", last)
    }
}

fn program(model: &str, case: LayoutCase, compute: Element) -> Result<Arc<Program>, ProgramError> {
    Ok(Arc::new(Program::new(parts(model, case, compute)?)?))
}

/// The losses of [`NUM_STEPS`] steps, with all ranks as threads.
fn losses<B: Kernels>(
    model: &str,
    case: LayoutCase,
    compute: Element,
    devices: &[B::Device],
) -> Result<Vec<f64>, String> {
    let program = program(model, case, compute).map_err(|error| error.to_string())?;
    let run = |communicator: Arc<dyn Communicator<B>>| {
        let device = &devices[communicator.rank() as usize % devices.len()];
        of_rank(&program, communicator, device.clone())
    };
    let run = || {
        let outcomes = local::run(program.num_ranks(), devices, run);
        outcomes.map_err(|failure| failure.to_string())
    };
    Ok(caught(run)??.swap_remove(0))
}

/// The losses of this rank.
fn of_rank<B: Kernels>(
    program: &Arc<Program>,
    communicator: Arc<dyn Communicator<B>>,
    device: B::Device,
) -> Result<Vec<f64>, RunError> {
    let source = Arc::new(source(program)?);
    let seed = program.settings.seed;
    let values = |parameter: &LocalParameter| Ok::<_, RunError>(parameter.initial_values(seed));
    let mut rank = Rank::new(Arc::clone(program), source, communicator, device, values)?;
    let losses = (0..NUM_STEPS).map(|_| Ok(rank.step()?.loss)).collect();
    rank.settle()?;
    losses
}
