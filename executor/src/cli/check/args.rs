//! Arguments of `executor check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::choices::{Backend, CommunicatorKind, parse_timeout};
use crate::cli::measuring::{RanksArgs, ReportFormat};

/// Arguments of `executor check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The backend to check.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub(crate) backend: Backend,
    /// Time limit of the whole check, in minutes; checks for which no time is left are skipped.
    #[arg(long, value_name = "M", default_value = "10", value_parser = parse_minutes, allow_negative_numbers = true)]
    pub(crate) minutes: Duration,
    /// Check only these parts, and the device, which is always checked [default: all].
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    pub(crate) only: Vec<CheckPart>,
    /// A cluster file with the data sheet of the GPU [default: the planner's cluster of this GPU, if there is one].
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(crate) format: ReportFormat,
    /// Write the output of `--format json` to a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write a cluster file of this machine, which the planner reads.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The name in the cluster file [default: this-machine].
    #[arg(long, value_name = "NAME", requires = "output")]
    pub(crate) cluster_name: Option<String>,
}

impl CheckArgs {
    /// Returns whether a part is checked: the device always is.
    pub(super) fn includes(&self, part: CheckPart) -> bool {
        part == CheckPart::Device || self.only.is_empty() || self.only.contains(&part)
    }
}

/// A part of a check; parts are done in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum CheckPart {
    /// Driver, compiler, devices.
    Device,
    /// Memory, launches, the link to the host.
    Speeds,
    /// Matrix products.
    Products,
    /// Collectives between devices, or between ranks that share one.
    Collectives,
    /// Every operator that has its own kernels, compared with the CPU.
    Kernels,
    /// Layouts, compared with one rank on the CPU.
    Layouts,
    /// The same layouts with a process for each GPU, over NCCL.
    Nccl,
    /// Tokens per second of a model, next to the planner's prediction.
    Training,
}

impl CheckPart {
    /// Weight of the part: its share of the time left is this over the weights of it and all later parts.
    pub(crate) const fn weight(self) -> f64 {
        match self {
            Self::Device => 5.0,
            Self::Speeds => 5.0,
            Self::Products => 10.0,
            Self::Collectives => 10.0,
            Self::Kernels => 25.0,
            Self::Layouts => 25.0,
            Self::Nccl => 10.0,
            Self::Training => 15.0,
        }
    }
}

/// One part, checked in its own process, so that a device that fails affects no other part.
#[derive(Debug, Args)]
pub(crate) struct PartArgs {
    /// The part.
    #[arg(value_enum)]
    pub(crate) part: CheckPart,
    /// Where tensors are computed.
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub(crate) backend: Backend,
    /// How ranks communicate, where each is a process.
    #[arg(long, value_enum, default_value_t = CommunicatorKind::Local)]
    pub(crate) communicator: CommunicatorKind,
    /// Time limit, in seconds.
    #[arg(long, value_parser = parse_timeout)]
    pub(crate) seconds: Duration,
    /// A cluster file with the device's data sheet.
    #[arg(long)]
    pub(crate) sheet: Option<PathBuf>,
    /// The device's peak rate, in operations per second, where no data sheet has it.
    #[arg(long)]
    pub(crate) peak: Option<f64>,
}

impl PartArgs {
    /// Arguments of one of the ranks that a launcher started.
    pub(super) fn ranks(&self) -> RanksArgs {
        RanksArgs {
            ranks: None,
            backend: self.backend,
            communicator: self.communicator,
            communication_timeout: self.seconds,
            threads_per_rank: None,
        }
    }
}

/// Minimum time of a check, in minutes: starting alone takes seconds.
const LEAST_MINUTES: f64 = 0.1;

/// Maximum time of a check, in minutes: a day.
const MOST_MINUTES: f64 = 1440.0;

fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse().ok().filter(|it: &f64| (LEAST_MINUTES..=MOST_MINUTES).contains(it));
    minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)).ok_or_else(|| {
        format!("must be a number of minutes from {LEAST_MINUTES} to {MOST_MINUTES}")
    })
}
