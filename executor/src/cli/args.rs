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

/// Runs the planner's plans, each rank its part, on this machine's CPU, its GPUs, or a cluster.
#[derive(Debug, Parser)]
#[command(name = "executor", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train the model of a plan in the plan's layout.
    ///
    /// Every rank executes its part of the plan's schedule. Stderr has a description of the run and its progress;
    /// stdout has the results next to the plan's predictions or, with `--format json`, a line for each step. The exit
    /// code is 0 when all steps are done, and 2 on an error, whose message names the rank where it occurred; the other
    /// ranks then stop too, and checkpoints stay as they are.
    #[command(
        after_help = "Examples:\n  executor run plan.json --steps 10\n  executor run plan.json --data tokens.bin --checkpoint checkpoints --timeline step.json"
    )]
    Run(Box<RunArgs>),
    /// Write the weights of a checkpoint as one safetensors file, under Hugging Face's names.
    ///
    /// The exit code is 0 when the file is written, and 2 on an error; then no file is left.
    #[command(
        after_help = "Example:\n  executor export checkpoints plan.json -o model.safetensors"
    )]
    Export(ExportArgs),
    /// Run collectives on real ranks: who holds what before and after, whether the result is right, and how long it
    /// takes.
    ///
    /// The table is that of nccl-tests: `algbw` is the buffer's bytes over the time; `busbw` is scaled so that it
    /// compares with the bandwidth of the links, whatever the number of ranks. Times are medians of the slowest rank's
    /// times. The exit code is 2 if a rank ended with a wrong result.
    #[command(after_help = "Example:\n  executor collectives all-reduce --ranks 4 --max-bytes 64M")]
    Collectives(CollectivesArgs),
    /// Measure this machine, and write a cluster file with which the planner plans for it.
    ///
    /// All ranks train small models at once, and the times of their operators are fitted: products, attention,
    /// operators that move data, the update. Then collectives are timed, as `executor collectives` does. Run it while
    /// the machine does nothing else, with as many ranks as plans will have. If it is interrupted, it leaves no file.
    #[command(after_help = "Example:\n  executor calibrate --ranks 4 -o mine.json")]
    Calibrate(CalibrateArgs),
    /// Find out what this machine can do: devices, memory, products, collectives, every kernel and layout compared with
    /// the CPU, and a model's tokens per second next to the planner's prediction.
    ///
    /// Each part runs in its own process, so that a device that fails affects no other part. The exit code is 0 when
    /// nothing failed, 1 when something did, and 2 when nothing can be checked, for example without a driver. With
    /// `-o`, the measurements are also written as a cluster file for the planner. Run it while the machine does nothing
    /// else.
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

/// Arguments of `executor run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A plan that `planner search` or `planner evaluate` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Total number of training steps, including those before a checkpoint.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least::<1>, allow_negative_numbers = true)]
    pub(crate) steps: u64,
    /// Training data: a text (`.txt`, `.md`), whose bytes are the tokens, or token ids as little-endian integers
    /// (`.u16`, `.bin`, `.u32`) [default: a book that comes with the program].
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Where tensors are computed.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub(crate) backend: Backend,
    /// How ranks communicate.
    #[arg(long, value_enum, default_value_t = CommunicatorKind::Local)]
    pub(crate) communicator: CommunicatorKind,
    /// Time limit of a collective or a message of NCCL, in seconds; beyond it the run ends and names the one that took
    /// longer.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = parse_timeout, allow_negative_numbers = true)]
    pub(crate) communication_timeout: Duration,
    /// Threads for the kernels of each rank on the CPU, as `executor calibrate` measures them [default: all ranks share
    /// the process's threads, one for each core].
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    pub(crate) threads_per_rank: Option<NonZeroUsize>,
    /// Seed that decides initial weights and the order of samples.
    #[arg(long, default_value_t = 0, value_parser = at_least::<0>, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) checkpoints: CheckpointArgs,
    #[command(flatten)]
    pub(crate) training: TrainingArgs,
}

/// Output of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Write the timeline of all ranks in one step, which `planner chart` draws and Perfetto opens.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// The step of the timeline, counting from 1 [default: the last].
    #[arg(long, value_name = "STEP", requires = "timeline", value_parser = at_least::<1>, allow_negative_numbers = true)]
    pub(crate) timeline_step: Option<u64>,
}

/// Checkpoints that a run writes, and the weights that it starts with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Checkpoints")]
pub(crate) struct CheckpointArgs {
    /// Keep checkpoints in this folder. If it has any, training resumes from the newest complete one, whatever layout
    /// wrote it.
    #[arg(long = "checkpoint", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Steps from one checkpoint to the next; the last step always has one.
    #[arg(long = "checkpoint-every", value_name = "N", default_value = "100", value_parser = parse_from_one, requires = "folder")]
    pub(crate) every: NonZeroU64,
    /// Number of checkpoints to keep.
    #[arg(long = "keep-checkpoints", value_name = "N", default_value = "2", value_parser = parse_kept, requires = "folder")]
    pub(crate) keep: NonZeroUsize,
    /// Begin with these weights instead of random ones, unless there is a checkpoint: a safetensors
    /// file, or a model's folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: Option<PathBuf>,
}

/// Training settings that a plan leaves open.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainingArgs {
    /// Compute in this precision instead of the plan's: activations, and the weights that kernels read. With 16 bits,
    /// master weights are fp32, and with fp16 the loss is scaled too. With fp64, the optimizer is in fp64 too, so that
    /// layouts can be compared to the last digit.
    #[arg(long, value_enum)]
    pub(crate) precision: Option<PrecisionArg>,
    /// The peak learning rate.
    #[arg(long, value_name = "RATE", default_value_t = 3e-4, value_parser = parse_rate, allow_negative_numbers = true)]
    pub(crate) learning_rate: f64,
    /// Steps of warmup, in which the learning rate rises to its peak.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = at_least::<0>, allow_negative_numbers = true)]
    pub(crate) warmup_steps: u64,
    /// Step at which the learning rate has fallen, along a cosine, to a tenth of its peak [default: it stays at its
    /// peak].
    #[arg(long, value_name = "N", value_parser = at_least::<0>, allow_negative_numbers = true)]
    pub(crate) decay_steps: Option<u64>,
    /// Weight decay: the share of each weight that a step subtracts, times the learning rate [default: 0.1 for AdamW,
    /// else 0].
    #[arg(long, value_name = "DECAY", value_parser = parse_rate, allow_negative_numbers = true)]
    pub(crate) weight_decay: Option<f64>,
    /// Limit of the norm of all gradients; gradients with a larger norm are scaled down to it; 0 for no limit [default:
    /// 1; none where the plan's schedule updates after each micro-batch].
    #[arg(long, value_name = "NORM", value_parser = parse_rate, allow_negative_numbers = true)]
    pub(crate) max_gradient_norm: Option<f64>,
    /// Capacity of an expert, as a multiple of its even share of a micro-batch's tokens; tokens that come after are not
    /// sent to it [default: no limit].
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, allow_negative_numbers = true)]
    pub(crate) expert_capacity_factor: Option<f64>,
    /// Make the passes of one rank take longer by a factor, to see the effect on the others: 1:4 slows rank 1 down to a
    /// quarter.
    #[arg(long, value_name = "RANK:FACTOR")]
    pub(crate) straggler: Option<Straggler>,
    /// Size of a bucket of gradients in MiB; a bucket is reduced once it has this size.
    #[arg(long, value_name = "MIB", default_value_t = 25, value_parser = whole_within::<u64, 1, LARGEST_BUCKET>, allow_negative_numbers = true)]
    pub(crate) bucket_size: u64,
}

/// Arguments of `executor export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A checkpoint; or a folder of checkpoints, of which the newest is taken.
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: PathBuf,
    /// A plan of the checkpoint's model.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "model.safetensors")]
    pub(crate) output: PathBuf,
    /// For adapters: the frozen weights with which they were trained, as they were given to the run.
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: Option<PathBuf>,
    /// Write only the adapters, as peft reads them, with `adapter_config.json` in the same folder; without this option,
    /// adapters are merged into the model.
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
