//! A run: the part that all ranks share, and the part of one rank.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
#[cfg(feature = "cuda")]
use burn_cuda::CudaDevice;
use command_line::destination::{check_folder, check_output, write_output};
use command_line::terminal::tell;
use executor_communicators::Communicator;
use executor_kernels::ops::Kernels;
use executor_runtime::base::Base;
use executor_runtime::batches::Source;
use executor_runtime::checkpoint::{CheckpointError, State, TrainingState, Weights};
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::Program;
use executor_runtime::rank::{Rank, RunError};
use executor_runtime::training::{self, RunReport};
use ir::graph::Learning;
use ir::layout::LayoutSpec;
use ir::plan::Plan;
use ir::replication::DataParallelMethod;
use traces::timeline::training_step;

use super::args::RunArgs;
use super::choices::Backend;
use super::measuring::RanksArgs;
use super::settings::{leaves_out_gradient_norm, settings};
use super::show::Show;
use super::work::RankJob;
use super::{files, limits, words};

/// A run on any ranks. If this process has all of them, the job is prepared before they start.
pub(super) struct Run<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) job: Option<Job<'a>>,
}

impl RankJob for Run<'_> {
    fn run<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()> {
        if let Some(job) = &self.job {
            return job.run_rank(communicator, device);
        }
        let place = ProcessRank { rank: communicator.rank(), num_ranks: communicator.num_ranks() };
        let plan = files::read(&self.args.plan)?;
        let Some(job) = prepare(self.args, &plan, Some(&place))? else { return Ok(()) };
        job.run_rank(communicator, device)
    }

    fn threads(&self, ranks: &RanksArgs, _num_ranks: u32) -> Option<NonZeroUsize> {
        ranks.threads_per_rank
    }

    /// Fails if the tensors of ranks on a GPU exceed its free memory, where they run in the plan's precision.
    #[cfg(feature = "cuda")]
    fn check_memory(&self, gpu: &CudaDevice, num_ranks: usize) -> anyhow::Result<()> {
        if self.args.training.precision.is_some() {
            return Ok(());
        }
        let each = words::expected_tensors(&files::read(&self.args.plan)?.prediction.memory);
        let (needed, free) = (each * num_ranks as u64, executor_kernels::cuda::free_memory(gpu)?);
        ensure!(
            needed <= free,
            "GPU {} has {free} free, but the tensors of its {} need {needed} at least\nhint: plan for more GPUs, or with \
             recompute or a higher ZeRO stage",
            gpu.index,
            if num_ranks == 1 { "rank".to_owned() } else { format!("{num_ranks} ranks") },
        );
        Ok(())
    }
}

/// Rank of this process, and the number of processes.
pub(super) struct ProcessRank {
    rank: u32,
    num_ranks: u32,
}

/// Prepares a run, with all checks that are possible before training starts; none if nothing is left to do. `place` is
/// given where this process is one rank, none where it has all of them.
pub(super) fn prepare<'a>(
    args: &'a RunArgs,
    plan: &'a Plan,
    place: Option<&ProcessRank>,
) -> anyhow::Result<Option<Job<'a>>> {
    let settings = settings(args, plan);
    let named = || format!("`{}`", args.plan.display());
    let mut program = Program::from_plan(plan, settings).with_context(named)?;
    let needed = program.num_ranks();
    match place {
        None => limits::check_memory(plan, &program)?,
        Some(ProcessRank { num_ranks: started, .. }) => ensure!(
            *started == needed,
            "the plan is for {}, but {started} were started\nhint: start {needed}, or make a plan for \
             {started} GPUs",
            words::ranks(needed)
        ),
    }
    if let Some(step) = args.output.timeline_step.filter(|step| *step > args.steps) {
        bail!("`--timeline-step {step}` is after the last of {} steps", args.steps);
    }
    if args.training.expert_capacity_factor.is_some() && program.num_mixtures() == 0 {
        bail!("`--expert-capacity-factor`: `{}` has no experts", program.model_name);
    }
    if let Some(straggler) = args.training.straggler {
        ensure!(
            straggler.rank < needed,
            "`--straggler`: the plan has no rank {}\nhint: 0 to {}",
            straggler.rank,
            needed - 1
        );
    }
    let method = program.settings.replication.method;
    if args.checkpoints.folder.is_some()
        && matches!(method, DataParallelMethod::Asynchronous { .. })
    {
        bail!(
            "`--checkpoint`: with data-parallel method {method} no two replicas are at the same step\n\
             hint: leave it out, or use a plan with another `--data-parallel-method`"
        );
    }
    let is_first = place.is_none_or(|place| place.rank == 0);
    if args.checkpoints.folder.is_some() && method == DataParallelMethod::RingAveraging {
        let text = "a checkpoint has the first replica's weights and moments: after it all go on from those";
        say(is_first, &format!("note: {text}"));
    }
    if program.leaves_out_dropout {
        let text = "the model's dropout is left out, as it was planned";
        say(is_first, &format!("warning: {text}\nhint: a plan made with `--dropout` has it"));
    }
    if leaves_out_gradient_norm(args, plan) {
        let schedule = plan.layout.schedule;
        let text = "updates after each micro-batch: gradients' norm has no limit";
        say(is_first, &format!("note: `{schedule}` {text}"));
    }
    if !plan.layout.switches.are_usual() {
        let text = "tokens go to experts by all-to-all, and operators run one by one, whatever the plan switches on";
        say(is_first, &format!("note: {text}"));
    }
    let (source, warning) = limits::source(args, &program)?;
    if let Some(warning) = warning {
        say(is_first, &format!("warning: {warning}"));
    }
    if args.backend == Backend::Cpu {
        // Where each rank is its own process, other ranks may be on other machines.
        let there = limits::memory().filter(|_| place.is_none());
        let much = there.and_then(|there| limits::much_memory(plan, there));
        for warning in limits::long_step(&program).into_iter().chain(much) {
            say(is_first, &format!("warning: {warning}"));
        }
    }
    let start = start(args, &mut program, is_first)?;
    if start.num_steps() == args.steps && args.output.timeline.is_none() {
        say(is_first, &format!("all {} steps are done: nothing is left to do", args.steps));
        return Ok(None);
    }
    check_outputs(args, start.num_steps())?;
    let (program, source) = (Arc::new(program), Arc::new(source));
    Ok(Some(Job { args, plan, program, source, start }))
}

/// Prints a message on the first process only.
fn say(is_first: bool, text: &str) {
    if is_first {
        tell(text);
    }
}

/// Checks before a run that its results can be written; `num_done` of its steps are done.
fn check_outputs(args: &RunArgs, num_done: u64) -> anyhow::Result<()> {
    if let Some(path) = &args.output.timeline {
        let step = args.output.timeline_step.unwrap_or(args.steps);
        if step <= num_done {
            bail!(
                "no timeline of step {step} can be recorded: the checkpoint has {num_done} steps already\n\
                 hint: a later `--timeline-step`, more `--steps`, or another `--checkpoint`"
            );
        }
        let inputs = [Some(&args.plan), args.data.as_ref(), args.checkpoints.weights.as_ref()];
        let inputs: Vec<&Path> = inputs.into_iter().flatten().map(PathBuf::as_path).collect();
        check_output(path, &inputs)?;
    }
    args.checkpoints.folder.as_deref().map_or(Ok(()), check_folder)
}

/// Start of training: a checkpoint, if there is one. Parameters that the checkpoint lacks come from `base`.
struct Start {
    base: Base,
    checkpoint: Option<State>,
}

impl Start {
    /// Number of steps that were done before.
    fn num_steps(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |state| state.training().step)
    }

    /// Initial values of a rank's part of a parameter. Those of a checkpoint are restored later, with its moments.
    fn values(&self, parameter: &LocalParameter, seed: u64) -> Result<Vec<f64>, CheckpointError> {
        let is_frozen = matches!(parameter.learning, Learning::Frozen(_));
        if self.checkpoint.is_some() && !is_frozen {
            return Ok(vec![0.0; parameter.num_elements()]);
        }
        self.base.values(parameter, seed)
    }
}

/// The start of training; only the first process reads all of a checkpoint to verify it.
fn start(args: &RunArgs, program: &mut Program, is_first: bool) -> anyhow::Result<Start> {
    let parameters = program.parameters();
    let found = newest_checkpoint(args, is_first)?;
    // A checkpoint has everything except frozen weights.
    let weights = args.checkpoints.weights.as_ref();
    let weights = weights.filter(|_| found.is_none() || program.adapters.is_some());
    let base = match weights {
        None => Base::Random { seed: args.seed },
        Some(path) => Base::Weights(Weights::open(path, &program.naming(), &parameters)?),
    };
    base.check()?;
    program.base = base.identity(program)?;
    let Some((path, state)) = found else { return Ok(Start { base, checkpoint: None }) };
    state.check_model(&program.identity(), &program.trained_parameters())?;
    let named = || format!("going on from `{}`", path.display());
    check_training(args, program, state.training()).with_context(named)?;
    check_base(program, state.training()).with_context(named)?;
    if is_first {
        state.verify()?;
    }
    let instead = match &args.checkpoints.weights {
        Some(weights) if program.adapters.is_none() => {
            format!(", and not from `{}`", weights.display())
        }
        _ => String::new(),
    };
    say(is_first, &format!("going on from `{}`{instead}", path.display()));
    Ok(Start { base, checkpoint: Some(state) })
}

/// The newest complete checkpoint of the folder, if there is one.
fn newest_checkpoint(args: &RunArgs, is_first: bool) -> anyhow::Result<Option<(PathBuf, State)>> {
    let warn =
        |skipped: &_| say(is_first, &format!("warning: a checkpoint is passed over: {skipped}"));
    let folder = args.checkpoints.folder.as_ref();
    folder.map_or(Ok(None), |folder| files::newest_checkpoint(folder, warn))
}

/// Refuses to resume with other frozen weights.
fn check_base(program: &Program, before: &TrainingState) -> anyhow::Result<()> {
    if before.base != program.base {
        let named = |base: &Option<String>| base.clone().unwrap_or_else(|| "none".to_owned());
        bail!(
            "its adapters were trained beside {}, not {}\nhint: give `--weights` as then, or another folder",
            named(&before.base),
            named(&program.base)
        );
    }
    Ok(())
}

/// Refuses to resume a run with other settings: other samples would follow.
fn check_training(args: &RunArgs, program: &Program, before: &TrainingState) -> anyhow::Result<()> {
    if before.seed != args.seed {
        bail!(
            "it was trained with `--seed {}`, not {}, and would see other samples\nhint: use that seed, \
             or another folder",
            before.seed,
            args.seed
        );
    }
    if before.next_sample != before.step.saturating_mul(program.global_batch_size) {
        bail!(
            "its {} steps took {} samples, but the plan's global batch size is {}\nhint: use a plan with \
             its batch size, or another folder",
            before.step,
            before.next_sample,
            program.global_batch_size
        );
    }
    let optimizer = serde_json::to_value(program.settings.optimizer.kind)?;
    if optimizer != before.optimizer.kind.as_str() {
        bail!(
            "it was trained with optimizer `{}`, but the plan says {optimizer}\nhint: use a plan with its \
             optimizer, or `executor export` it and begin with `--weights`",
            before.optimizer.kind
        );
    }
    if before.step > args.steps {
        bail!(
            "it has {} steps already, but `--steps` is {}\nhint: `--steps` counts from the first step of \
             all",
            before.step,
            args.steps
        );
    }
    Ok(())
}

/// A prepared run, ready to be started on ranks.
pub(super) struct Job<'a> {
    args: &'a RunArgs,
    plan: &'a Plan,
    pub(super) program: Arc<Program>,
    source: Arc<Source>,
    start: Start,
}

impl Job<'_> {
    /// Runs one rank.
    fn run_rank<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()> {
        let is_first = communicator.rank() == 0;
        let mut show = Show::new(self.args, self.plan, &self.program, is_first);
        show.start(self.start.num_steps());
        let outcome = self.train(communicator, device, &mut show);
        if outcome.is_err() {
            show.stop();
        }
        outcome
    }

    fn train<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
        show: &mut Show<'_>,
    ) -> anyhow::Result<()> {
        let seed = self.args.seed;
        let values =
            |parameter: &LocalParameter| Ok::<_, RunError>(self.start.values(parameter, seed)?);
        let (program, source) = (Arc::clone(&self.program), Arc::clone(&self.source));
        let mut rank = Rank::new(program, source, communicator, device, values)?;
        if let Some(state) = &self.start.checkpoint {
            rank.restore(state)?;
        }
        let recorded = self
            .args
            .output
            .timeline
            .as_ref()
            .map(|_| self.args.output.timeline_step.unwrap_or(self.args.steps));
        let report = training::train(&mut rank, self.args.steps, recorded, |rank, step| {
            show.step(step)?;
            self.save(rank, step.step)
        })?;
        if let Some(report) = report {
            self.finish(show, report)?;
        }
        Ok(())
    }

    /// Writes a checkpoint where one is due.
    fn save<B: Kernels>(&self, rank: &Rank<B>, step: u64) -> anyhow::Result<()> {
        let Some(directory) = &self.args.checkpoints.folder else { return Ok(()) };
        if step.is_multiple_of(self.args.checkpoints.every.get()) || step == self.args.steps {
            rank.save(directory, self.args.checkpoints.keep)?;
        }
        Ok(())
    }

    fn finish(&self, show: &mut Show<'_>, report: RunReport) -> anyhow::Result<()> {
        show.finish(&report)?;
        if let (Some(path), Some(mut timeline)) = (&self.args.output.timeline, report.timeline) {
            let step = self.args.output.timeline_step.unwrap_or(self.args.steps);
            let LayoutSpec { schedule, num_micro_batches, .. } = self.program.layout;
            timeline.title = format!(
                "{}, step {step} as measured: {} ranks, {}, {schedule}, {num_micro_batches} micro-batches",
                self.program.model_name,
                self.program.num_ranks(),
                self.program.layout
            );
            let Program { model_name, global_batch_size, sequence_length, .. } = &*self.program;
            timeline.work = training_step(model_name, *global_batch_size, *sequence_length);
            write_output(path, traces::chrome::write(&timeline).as_bytes())?;
            tell(&format!(
                "wrote `{0}`; `planner simulate {1} -o predicted.json` makes what it compares with in \
                 `planner chart predicted.json {0}`",
                path.display(),
                self.args.plan.display()
            ));
        }
        Ok(())
    }
}
