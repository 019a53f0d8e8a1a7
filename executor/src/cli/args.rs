//! Arguments of the command line.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use command_line::numbers::whole;
use ir::replication::Straggler;

use super::check::{CheckArgs, PartArgs};
use super::choices::{parse_threads, parse_timeout, whole_within};
use super::measuring::{CalibrateArgs, CollectivesArgs};

pub(crate) use super::choices::{Backend, CommunicatorKind, PrecisionArg};

/// Runs what the planner plans: every rank its part, on this machine's CPU, its GPUs, or a cluster.
#[derive(Debug, Parser)]
#[command(name = "executor", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train the model of a plan as the plan lays it out.
    ///
    /// Every rank works through its part of the plan's schedule. On stderr is what is run and how it goes;
    /// on stdout what it came to beside what the plan predicted, or with `--format json` a line for each
    /// step. The exit code is 0 when all steps are done and 2 on an error, which names the rank that had
    /// it; the other ranks then stop too, and checkpoints stay as they are.
    #[command(
        after_help = "Examples:\n  executor run plan.json --steps 10\n  executor run plan.json --data tokens.bin --checkpoint checkpoints --timeline step.json"
    )]
    Run(Box<RunArgs>),
    /// Write the weights of a checkpoint as one safetensors file, by Hugging Face's names.
    ///
    /// The exit code is 0 when the file is written and 2 on an error; there is then no file.
    #[command(
        after_help = "Example:\n  executor export checkpoints plan.json -o model.safetensors"
    )]
    Export(ExportArgs),
    /// Run collectives on real ranks: who holds what before and after, whether it is right, and how long
    /// it takes.
    ///
    /// The table is that of nccl-tests: `algbw` is the buffer's bytes over the time, `busbw` what that is
    /// of the links' bandwidth, whatever the number of ranks. Times are medians of the slowest rank's. With
    /// `-o` the network of a cluster file becomes what was measured. The exit code is 2 where a rank ended
    /// with what it should not have.
    #[command(after_help = "Example:\n  executor collectives all-reduce --ranks 4 --max-bytes 64M")]
    Collectives(CollectivesArgs),
    /// Measure this machine, and write the cluster file that the planner plans for it with.
    ///
    /// All ranks train small models at once, and what their operators take is fitted: products, attention,
    /// what moves data, the update. Then collectives are timed, as `executor collectives` does. Run it while
    /// the machine does nothing else; with as many ranks as plans will have. Interrupted, it leaves no file.
    #[command(after_help = "Example:\n  executor calibrate --ranks 4 -o mine.json")]
    Calibrate(CalibrateArgs),
    /// Find out what this machine can do: devices, memory, products, collectives, every kernel and layout against
    /// the CPU, and tokens a second of a model beside what the planner predicts.
    ///
    /// Each part runs in a process of its own, so that a device that fails takes no other part with it. The exit
    /// code is 0 when nothing failed, 1 when something did, and 2 where nothing can be checked, as without a driver.
    /// With `-o` there is a cluster file of what was measured, for the planner. Run it while the machine does
    /// nothing else.
    #[command(
        after_help = "Example:\n  executor check --backend cuda -o mine.json --report check.json"
    )]
    Check(CheckArgs),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  executor completions bash > ~/.local/share/bash-completion/completions/executor"
    )]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the pages of the manual: `executor.1`, and one for each command.
    #[command(after_help = "Example:\n  executor man ~/.local/share/man/man1 && man executor-run")]
    Man {
        /// The folder, which is made if it is not there.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// One part of a check.
    #[command(hide = true)]
    CheckPart(PartArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A progress bar and a summary.
    Table,
    /// A JSON object for each step, on a line of its own.
    Json,
}

/// What is run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A plan that `planner search` or `planner evaluate` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Steps of training in all, those before a checkpoint included.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least::<1>, allow_negative_numbers = true)]
    pub(crate) steps: u64,
    /// What to train on: a text (`.txt`, `.md`), whose bytes are the tokens, or token ids as little-endian integers
    /// (`.u16`, `.bin`, `.u32`) [default: a book that comes with the program].
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Where tensors are computed.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub(crate) backend: Backend,
    /// How ranks reach each other.
    #[arg(long, value_enum, default_value_t = CommunicatorKind::Local)]
    pub(crate) communicator: CommunicatorKind,
    /// How long, in seconds, a collective or a message of NCCL may take before the run ends and says which.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = parse_timeout, allow_negative_numbers = true)]
    pub(crate) communication_timeout: Duration,
    /// Threads for the kernels of each rank on the CPU, as `executor calibrate` measures them [default: all
    /// ranks share those of the process, one for each core].
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    pub(crate) threads_per_rank: Option<NonZeroUsize>,
    /// Decides first weights and the order of samples.
    #[arg(long, default_value_t = 0, value_parser = at_least::<0>, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) checkpoints: CheckpointArgs,
    #[command(flatten)]
    pub(crate) training: TrainingArgs,
}

/// What a run tells.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// What is printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Write what every rank did in one step, which `planner chart` draws and Perfetto opens.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// The step of the timeline, counting from 1 [default: the last].
    #[arg(long, value_name = "STEP", requires = "timeline", value_parser = at_least::<1>, allow_negative_numbers = true)]
    pub(crate) timeline_step: Option<u64>,
}

/// What a run leaves, and begins with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checkpoints")]
pub(crate) struct CheckpointArgs {
    /// Keep checkpoints in this folder. If it has any, training goes on from the newest whole one,
    /// whatever layout wrote it.
    #[arg(long = "checkpoint", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Steps from one checkpoint to the next; the last step always has one.
    #[arg(long = "checkpoint-every", value_name = "N", default_value = "100", value_parser = parse_from_one, requires = "folder")]
    pub(crate) every: NonZeroU64,
    /// How many checkpoints stay.
    #[arg(long = "keep-checkpoints", value_name = "N", default_value = "2", value_parser = parse_kept, requires = "folder")]
    pub(crate) keep: NonZeroUsize,
    /// Begin with these weights instead of random ones, unless there is a checkpoint: a safetensors
    /// file, or a model's folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: Option<PathBuf>,
}

/// What a plan leaves open of training.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Compute in this precision instead of the plan's: activations, and the weights that kernels read. In 16 bits
    /// master weights are fp32, and fp16 scales the loss; in fp64 the optimizer is too, so that layouts can be
    /// compared to the last digit.
    #[arg(long, value_enum)]
    pub(crate) precision: Option<PrecisionArg>,
    /// The highest learning rate.
    #[arg(long, value_name = "RATE", default_value_t = 3e-4, value_parser = parse_rate, allow_negative_numbers = true)]
    pub(crate) learning_rate: f64,
    /// Steps in which the learning rate rises to its highest.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = at_least::<0>, allow_negative_numbers = true)]
    pub(crate) warmup_steps: u64,
    /// Step at which the learning rate has fallen, along a cosine, to a tenth [default: it stays].
    #[arg(long, value_name = "N", value_parser = at_least::<0>, allow_negative_numbers = true)]
    pub(crate) decay_steps: Option<u64>,
    /// Share of each weight that a step takes off, times the learning rate [default: 0.1 for AdamW,
    /// else 0].
    #[arg(long, value_name = "DECAY", value_parser = parse_rate, allow_negative_numbers = true)]
    pub(crate) weight_decay: Option<f64>,
    /// Gradients of a larger norm are scaled down to this one; 0 for no limit [default: 1; none where the
    /// plan's schedule updates after each micro-batch].
    #[arg(long, value_name = "NORM", value_parser = parse_rate, allow_negative_numbers = true)]
    pub(crate) max_gradient_norm: Option<f64>,
    /// An expert takes so many times its even share of a micro-batch's tokens; those that come later go
    /// without it [default: it takes all].
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, allow_negative_numbers = true)]
    pub(crate) expert_capacity_factor: Option<f64>,
    /// Make the passes of a rank take so many times as long, to see what the others do meanwhile: 1:4 slows
    /// rank 1 down to a quarter.
    #[arg(long, value_name = "RANK:FACTOR")]
    pub(crate) straggler: Option<Straggler>,
    /// Gradients are reduced once so many MiB of them are there.
    #[arg(long, value_name = "MIB", default_value_t = 25, value_parser = whole_within::<u64, 1, LARGEST_BUCKET>, allow_negative_numbers = true)]
    pub(crate) bucket_size: u64,
}

/// What is exported.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A checkpoint, or the folder of several, of which the newest is taken.
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: PathBuf,
    /// The plan whose model it is of.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "model.safetensors")]
    pub(crate) output: PathBuf,
    /// The frozen weights beside which adapters were trained, as they were given to the run.
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: Option<PathBuf>,
    /// Write adapters alone, as peft reads them, with `adapter_config.json` beside the file; without it they
    /// are merged into the model.
    #[arg(long)]
    pub(crate) adapters: bool,
}

/// Parses a whole number of at least `LEAST`.
fn at_least<const LEAST: u64>(text: &str) -> Result<u64, String> {
    whole(text, LEAST)
}

fn parse_from_one(text: &str) -> Result<NonZeroU64, String> {
    whole(text, 1).map(|count| NonZeroU64::new(count).unwrap_or(NonZeroU64::MIN))
}

fn parse_kept(text: &str) -> Result<NonZeroUsize, String> {
    let kept = whole(text, 1).map(|count| usize::try_from(count).unwrap_or(usize::MAX))?;
    Ok(NonZeroUsize::new(kept).unwrap_or(NonZeroUsize::MIN))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    rate.ok_or_else(|| "must be a number, at least 0".to_owned())
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor.ok_or_else(|| "must be a number above 0".to_owned())
}

/// Buckets larger than this, in MiB, hold the gradients of any rank.
const LARGEST_BUCKET: u64 = 1 << 20;
