//! What can be said on the command line.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs plans: one program per rank, on this machine's CPU, its GPUs, or a cluster.
#[derive(Debug, Parser)]
#[command(name = "executor", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train the model of a plan as the plan lays it out.
    Run(RunArgs),
    /// Write the weights of a checkpoint as one safetensors file, by Hugging Face's names.
    Export(ExportArgs),
}

/// Where tensors are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// This machine's processor.
    Cpu,
    /// NVIDIA GPUs. Needs the cargo feature `cuda`.
    Cuda,
}

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommunicatorKind {
    /// Ranks are threads of this process.
    Local,
    /// Ranks are processes started by `mpirun` or `srun`. Needs the cargo feature `mpi`.
    Mpi,
    /// As `mpi` or with a rendezvous address, with tensors going from GPU to GPU. Needs the cargo
    /// feature `cuda`.
    Nccl,
}

/// What activations and the weights that kernels read are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// 64-bit floats, also in the optimizer: to compare layouts to the last digit.
    Fp64,
    /// 32-bit floats.
    Fp32,
    /// Half precision, with dynamic loss scaling and fp32 master weights.
    Fp16,
    /// 16-bit floats with the range of fp32, and fp32 master weights.
    Bf16,
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
    /// Steps to train.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) steps: u64,
    /// What to train on: a text (`.txt`, `.md`), whose bytes are the tokens, or token ids as
    /// little-endian integers (`.u16`, `.bin`, `.u32`). A text that ships, if left out.
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Where tensors are computed.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub(crate) backend: Backend,
    /// How ranks reach each other.
    #[arg(long, value_enum, default_value_t = CommunicatorKind::Local)]
    pub(crate) communicator: CommunicatorKind,
    /// Keep checkpoints in this folder. If it has any, training goes on from the newest complete one,
    /// whatever layout wrote it.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Steps from one checkpoint to the next; the last step always has one.
    #[arg(long, value_name = "N", default_value = "100", requires = "checkpoint")]
    pub(crate) checkpoint_every: NonZeroU64,
    /// How many checkpoints stay.
    #[arg(long, value_name = "N", default_value = "2", requires = "checkpoint")]
    pub(crate) keep_checkpoints: NonZeroUsize,
    /// Start from these weights instead of random ones: a safetensors file, or a model's folder.
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: Option<PathBuf>,
    /// Write a timeline of one step, which `planner chart` draws and Perfetto opens.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// The step of the timeline, counting from 1; the last if left out.
    #[arg(long, value_name = "STEP", requires = "timeline")]
    pub(crate) timeline_step: Option<u64>,
    /// Compute in this precision instead of the plan's.
    #[arg(long, value_enum)]
    pub(crate) precision: Option<PrecisionArg>,
    /// The highest learning rate.
    #[arg(long, value_name = "RATE", default_value_t = 3e-4)]
    pub(crate) learning_rate: f64,
    /// Steps in which the learning rate rises to its highest.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) warmup_steps: u64,
    /// Step at which the learning rate has fallen, along a cosine, to a tenth; it stays if left out.
    #[arg(long, value_name = "N")]
    pub(crate) decay_steps: Option<u64>,
    /// Share of each weight that a step takes off, times the learning rate.
    #[arg(long, value_name = "DECAY")]
    pub(crate) weight_decay: Option<f64>,
    /// Gradients of a larger norm are scaled down to this one; 0 for no limit.
    #[arg(long, value_name = "NORM", default_value_t = 1.0)]
    pub(crate) max_gradient_norm: f64,
    /// Gradients are reduced once so many MiB of them are there.
    #[arg(long, value_name = "MIB", default_value_t = 25)]
    pub(crate) bucket_size: u64,
    /// Decides first weights and the order of samples.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// What is printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
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
}
