//! `executor run`.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use burn_flex::{Flex, FlexDevice};
use executor::array::Element;
use executor::batches::Source;
use executor::checkpoint::{State, Weights, latest};
use executor::communicator::{Communicator, local};
use executor::data::{Distribution, Samples, Sampling, SyntheticSamples, Tokens};
use executor::ops::Kernels;
use executor::parameters::LocalParameter;
use executor::program::{Program, read_plan};
use executor::rank::{Rank, RunError};
use executor::settings::{LearningRate, LossScaling, OptimizerSettings, Settings};
use executor::training::{self, Report};
use ir::cluster::Precision;
use ir::plan::Plan;

use super::args::{Backend, CommunicatorKind, PrecisionArg, RunArgs};
use super::device;
use super::show::Show;

/// Files larger than this are no plans.
const LARGEST_PLAN: u64 = 64 << 20;

/// The learning rate falls to this share of its highest.
const LEAST_SHARE: f64 = 0.1;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    if args.backend == Backend::Cuda || args.communicator == CommunicatorKind::Nccl {
        device::check(args)?;
        let plan = read(&args.plan).map_err(|error| device::tell(args, error))?;
        let job = prepare(args, &plan).map_err(|error| device::tell(args, error))?;
        return device::run(&job);
    }
    match args.communicator {
        CommunicatorKind::Local => {
            let plan = read(&args.plan)?;
            prepare(args, &plan)?.run_local()
        }
        #[cfg(feature = "mpi")]
        CommunicatorKind::Mpi => {
            // All processes are given the same: one says what is wrong with it.
            let tell = |error: anyhow::Error| {
                if super::mpi::is_first_process() { error } else { super::Told.into() }
            };
            let plan = read(&args.plan).map_err(tell)?;
            super::mpi::run(&prepare(args, &plan).map_err(tell)?)
        }
        #[cfg(not(feature = "mpi"))]
        CommunicatorKind::Mpi => bail!(
            "this `executor` was built without MPI\nhint: build it with `cargo build --release -p \
             executor --features mpi`, or leave `--communicator` out to run ranks as threads"
        ),
        CommunicatorKind::Nccl => unreachable!("NCCL is for GPUs"),
    }
}

/// All that can be found wrong before ranks start.
fn prepare<'a>(args: &'a RunArgs, plan: &'a Plan) -> anyhow::Result<Job<'a>> {
    let settings = settings(args, plan);
    let named = || format!("`{}`", args.plan.display());
    let program = Program::from_plan(plan, settings).with_context(named)?;
    let source = source(args, &program)?;
    if args.timeline_step.is_some_and(|step| step == 0 || step > args.steps) {
        bail!("`--timeline-step` is from 1 to the {} steps of the run", args.steps);
    }
    let start = start(args, &program)?;
    let (program, source) = (Arc::new(program), Arc::new(source));
    Ok(Job { args, plan, program, source, start })
}

pub(super) fn read(path: &Path) -> anyhow::Result<Plan> {
    let reading = || format!("reading `{}`", path.display());
    let length = std::fs::metadata(path).with_context(reading)?.len();
    if length > LARGEST_PLAN {
        bail!("`{}` has {length} bytes, but plans have at most {LARGEST_PLAN}", path.display());
    }
    let text = std::fs::read_to_string(path).with_context(reading)?;
    read_plan(&text).with_context(|| format!("`{}`", path.display()))
}

fn settings(args: &RunArgs, plan: &Plan) -> Settings {
    let precision = args.precision.unwrap_or(match plan.training.precision {
        Precision::Fp32 => PrecisionArg::Fp32,
        Precision::Fp16 => PrecisionArg::Fp16,
        Precision::Bf16 | Precision::Fp8 => PrecisionArg::Bf16,
    });
    let (compute, master) = match precision {
        PrecisionArg::Fp64 => (Element::F64, Element::F64),
        PrecisionArg::Fp32 => (Element::F32, Element::F32),
        PrecisionArg::Fp16 => (Element::F16, Element::F32),
        PrecisionArg::Bf16 => (Element::BF16, Element::F32),
    };
    let usual = OptimizerSettings::usual(plan.training.optimizer);
    Settings {
        optimizer: OptimizerSettings {
            weight_decay: args.weight_decay.unwrap_or(usual.weight_decay),
            ..usual
        },
        max_gradient_norm: (args.max_gradient_norm > 0.0).then_some(args.max_gradient_norm),
        schedule: LearningRate {
            peak: args.learning_rate,
            warmup_steps: args.warmup_steps,
            decay_steps: args.decay_steps,
            least: args.learning_rate * LEAST_SHARE,
        },
        compute,
        gradients: if plan.training.fp32_gradients { master } else { compute },
        master,
        loss_scaling: (precision == PrecisionArg::Fp16).then(LossScaling::default),
        bucket_bytes: args.bucket_size << 20,
        expert_capacity_factor: None,
        seed: args.seed,
    }
}

/// The settings of a plan that is not run.
pub(super) fn usual_settings(plan: &Plan) -> Settings {
    Settings {
        optimizer: OptimizerSettings::usual(plan.training.optimizer),
        max_gradient_norm: None,
        schedule: LearningRate::constant(0.0),
        compute: Element::F32,
        gradients: Element::F32,
        master: Element::F32,
        loss_scaling: None,
        bucket_bytes: 0,
        expert_capacity_factor: None,
        seed: 0,
    }
}

/// Where training starts.
enum Start {
    /// With random weights.
    Initial,
    /// With the weights of a model.
    Weights(Weights),
    /// Where a checkpoint left off.
    Checkpoint(State),
}

fn start(args: &RunArgs, program: &Program) -> anyhow::Result<Start> {
    let parameters = program.parameters();
    if let Some(directory) = &args.checkpoint {
        let found = latest(directory)?;
        for skipped in &found.skipped {
            writeln!(std::io::stderr(), "warning: {skipped}")?;
        }
        if let Some(path) = found.path {
            let state = State::open(&path)?;
            state.check_model(&program.identity(), &parameters)?;
            let training = state.training();
            if training.seed != args.seed {
                bail!(
                    "`{}` was trained with `--seed {}`, not {}: it would see other samples\nhint: \
                     use that seed, or another folder",
                    path.display(),
                    training.seed,
                    args.seed
                );
            }
            if training.step > args.steps {
                bail!(
                    "`{}` has {} steps already, but `--steps` is {}",
                    path.display(),
                    training.step,
                    args.steps
                );
            }
            writeln!(std::io::stderr(), "going on from `{}`", path.display())?;
            return Ok(Start::Checkpoint(state));
        }
    }
    match &args.weights {
        None => Ok(Start::Initial),
        Some(path) => {
            let naming = program.naming();
            Ok(Start::Weights(Weights::open(path, naming, &parameters)?))
        }
    }
}

/// What the model is trained on.
fn source(args: &RunArgs, program: &Program) -> anyhow::Result<Source> {
    let Some(vocab_size) = program.vocab_size() else {
        if let Some(data) = &args.data {
            bail!(
                "`--data {}`: `{}` takes no tokens\nhint: leave it out to train on made-up samples",
                data.display(),
                program.model_name
            );
        }
        let distribution = Distribution::StandardNormal;
        return Ok(Source::Synthetic(SyntheticSamples { distribution, seed: args.seed }));
    };
    let tokens = match &args.data {
        Some(path) => Tokens::open(path)?,
        None => Tokens::built_in(),
    };
    let sequence_length = program.sequence_length;
    let sampling = Sampling { sequence_length, vocab_size, seed: args.seed };
    Ok(Source::Tokens(Samples::new(tokens, sampling)?))
}

/// A run, ready to be started on ranks.
pub(super) struct Job<'a> {
    pub(super) args: &'a RunArgs,
    plan: &'a Plan,
    pub(super) program: Arc<Program>,
    source: Arc<Source>,
    start: Start,
}

impl Job<'_> {
    fn run_local(&self) -> anyhow::Result<()> {
        let run =
            |communicator: Arc<dyn Communicator<Flex>>| self.run_rank(communicator, FlexDevice);
        match local::run(self.program.num_ranks(), &[FlexDevice], run) {
            Ok(_) => Ok(()),
            Err(failure) => bail!("{failure}"),
        }
    }

    /// What one rank does.
    pub(super) fn run_rank<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()> {
        let is_first = communicator.rank() == 0;
        let mut show = Show::new(self.args, self.plan, &self.program, is_first);
        show.start()?;
        let seed = self.args.seed;
        let values = |parameter: &LocalParameter| match &self.start {
            Start::Initial => Ok::<_, RunError>(parameter.initial_values(seed)),
            Start::Weights(weights) => Ok(weights.read(&parameter.id, &parameter.part)?),
            Start::Checkpoint(_) => Ok(vec![0.0; parameter.num_elements()]),
        };
        let (program, source) = (Arc::clone(&self.program), Arc::clone(&self.source));
        let mut rank = Rank::new(program, source, communicator, device, values)?;
        if let Start::Checkpoint(state) = &self.start {
            rank.restore(state)?;
        }
        let recorded =
            self.args.timeline.as_ref().map(|_| self.args.timeline_step.unwrap_or(self.args.steps));
        let report = training::train(&mut rank, self.args.steps, recorded, |rank, step| {
            show.step(step)?;
            self.save(rank, step.step)
        })?;
        if let Some(report) = report {
            self.finish(&mut show, report)?;
        }
        Ok(())
    }

    /// Writes a checkpoint where one is due.
    fn save<B: Kernels>(&self, rank: &Rank<B>, step: u64) -> anyhow::Result<()> {
        let Some(directory) = &self.args.checkpoint else { return Ok(()) };
        if step.is_multiple_of(self.args.checkpoint_every.get()) || step == self.args.steps {
            rank.save(directory, self.args.keep_checkpoints)?;
        }
        Ok(())
    }

    fn finish(&self, show: &mut Show<'_>, report: Report) -> anyhow::Result<()> {
        show.finish(&report)?;
        if let (Some(path), Some(mut timeline)) = (&self.args.timeline, report.timeline) {
            let step = self.args.timeline_step.unwrap_or(self.args.steps);
            timeline.title = format!(
                "{}: {}, {}, step {step} as measured",
                self.plan.model.name, self.program.layout, self.program.layout.schedule
            );
            write_atomically(path, traces::chrome::write(&timeline).as_bytes())?;
        }
        Ok(())
    }
}

/// Writes a file whole or not at all: beside its place first, then renamed.
fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(writing)?;
    file.write_all(bytes).with_context(writing)?;
    file.as_file().sync_all().with_context(writing)?;
    file.persist(path).map_err(|error| error.error).with_context(writing)?;
    Ok(())
}

/// Whether someone watches.
pub(super) fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}
