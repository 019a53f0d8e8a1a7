//! Arguments of the commands that measure.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use command_line::numbers::quantity;
use executor_communicators::Reduction;
use ir::cluster::Precision;
use ir::units::Bytes;
use traces::collectives::Operation;

use super::choices::{
    Backend, CommunicatorKind, PrecisionArg, parse_threads, parse_timeout, whole_within,
};

/// Ranks, and what they run on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct RanksArgs {
    /// Number of ranks that are measured at once, as many as a plan would have; with `mpi` and `nccl`, the number that
    /// was started.
    #[arg(long, value_name = "N", value_parser = whole_within::<u32, 1, MOST_RANKS>, allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
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
    /// Threads for the kernels of each rank on the CPU [default: its share of the cores, at least 1].
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    pub(crate) threads_per_rank: Option<NonZeroUsize>,
}

/// Default number of ranks, where they are threads.
const DEFAULT_RANKS: u32 = 2;

impl RanksArgs {
    /// Number of ranks, where they are threads.
    pub(crate) fn num_ranks(&self) -> u32 {
        self.ranks.unwrap_or(DEFAULT_RANKS)
    }

    /// Threads for the kernels of each of `num_ranks` ranks.
    pub(crate) fn threads(&self, num_ranks: u32) -> NonZeroUsize {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let share = NonZeroUsize::new(cores / num_ranks.max(1) as usize);
        self.threads_per_rank.or(share).unwrap_or(NonZeroUsize::MIN)
    }
}

/// Which collectives are timed, and how.
#[derive(Debug, Args)]
#[command(next_help_heading = "Collectives")]
pub(crate) struct TimingArgs {
    /// Size of the smallest whole buffer: `1024`, `1K`, `4M`, `1G`.
    #[arg(long, value_name = "BYTES", default_value = "1K", value_parser = parse_bytes, allow_negative_numbers = true)]
    pub(crate) min_bytes: Bytes,
    /// Size of the largest whole buffer.
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = parse_bytes, allow_negative_numbers = true)]
    pub(crate) max_bytes: Bytes,
    /// Factor from each size to the next.
    #[arg(long, value_name = "F", default_value_t = 2, value_parser = parse_sizes_factor, allow_negative_numbers = true)]
    pub(crate) factor: u64,
    /// Timed calls at each size.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole_within::<u32, 1, 1_000_000>, allow_negative_numbers = true)]
    pub(crate) iterations: u32,
    /// Untimed calls before the timed ones.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole_within::<u32, 0, 1_000_000>, allow_negative_numbers = true)]
    pub(crate) warm_up: u32,
}

/// Arguments of `executor collectives`.
#[derive(Debug, Args)]
pub(crate) struct CollectivesArgs {
    /// The collective [default: all]: broadcast, scatter, gather, reduce, all-gather, reduce-scatter, all-reduce,
    /// all-to-all, send-receive.
    #[arg(value_name = "NAME", value_parser = parse_operation)]
    pub(crate) names: Vec<Operation>,
    /// How reductions combine.
    #[arg(long, value_enum, default_value_t = ReductionArg::Sum)]
    pub(crate) reduction: ReductionArg,
    /// Type of elements.
    #[arg(long, value_enum, default_value_t = PrecisionArg::Fp32)]
    pub(crate) precision: PrecisionArg,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(crate) format: ReportFormat,
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
    #[command(flatten)]
    pub(crate) ranks: RanksArgs,
}

/// How reductions combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReductionArg {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl ReductionArg {
    pub(crate) const fn reduction(self) -> Reduction {
        match self {
            Self::Sum => Reduction::Sum,
            Self::Product => Reduction::Product,
            Self::Max => Reduction::Max,
            Self::Min => Reduction::Min,
        }
    }

    /// Name of the reduction in the tables of nccl-tests.
    pub(crate) const fn nccl_name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "prod",
            Self::Max => "max",
            Self::Min => "min",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Text.
    Table,
    /// One JSON object.
    Json,
}

/// Maximum number of ranks as threads of one process.
const MOST_RANKS: u64 = 256;

fn parse_sizes_factor(text: &str) -> Result<u64, String> {
    let factor = text.parse().ok().filter(|factor| *factor >= 2);
    factor.ok_or_else(|| "must be a whole number, at least 2".to_owned())
}

/// Maximum size of a buffer, in bytes.
const LARGEST_BUFFER: u64 = 1 << 40;

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    const K: f64 = 1024.0;
    const UNITS: &[(&str, f64)] = &[
        ("", 1.0),
        ("K", K),
        ("M", K * K),
        ("G", K * K * K),
        ("KiB", K),
        ("MiB", K * K),
        ("GiB", K * K * K),
        ("KB", K),
        ("MB", K * K),
        ("GB", K * K * K),
        ("B", 1.0),
    ];
    let problem = || "must be a number of bytes, such as 1024, 64K, 4MiB or 1G".to_owned();
    let bytes = quantity(text, UNITS).filter(|bytes| bytes.fract() == 0.0).ok_or_else(problem)?;
    let within = Some(bytes as u64).filter(|bytes| (1..=LARGEST_BUFFER).contains(bytes));
    within.map(Bytes::new).ok_or_else(|| format!("must be from 1 to {LARGEST_BUFFER} bytes"))
}

fn parse_operation(text: &str) -> Result<Operation, String> {
    Operation::named(text).ok_or_else(|| {
        let names = Operation::ALL.map(|known| known.to_string()).join(", ");
        format!("no such collective; {names} are")
    })
}

/// Arguments of `executor calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// The cluster file to write. It is written whole at the end, or not at all.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The name in the file [default: this-machine, or that of the base].
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    /// A cluster file with the numbers of a data sheet: peak rates and memory. GPUs need one.
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
    /// The precisions to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fp32")]
    pub(crate) precision: Vec<CalibratedPrecision>,
    /// Fewer steps of fewer models, for a first look; it takes seconds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Ranks on each node, where ranks are processes on several nodes [default: all].
    #[arg(long, value_name = "N")]
    pub(crate) ranks_per_node: Option<NonZeroU32>,
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
    #[command(flatten)]
    pub(crate) ranks: RanksArgs,
}

/// A precision that plans have and the executor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CalibratedPrecision {
    /// 32-bit floats.
    Fp32,
    /// Half precision.
    Fp16,
    /// 16-bit floats with the range of fp32.
    Bf16,
}

impl CalibratedPrecision {
    pub(crate) const fn precision(self) -> Precision {
        match self {
            Self::Fp32 => Precision::Fp32,
            Self::Fp16 => Precision::Fp16,
            Self::Bf16 => Precision::Bf16,
        }
    }
}
