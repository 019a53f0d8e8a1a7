//! Arguments of commands that draw.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ir::units::Nanos;

use super::headings::OUTPUT;
use crate::cli::values::{LARGEST_COST, number, parse_count, parse_moment, whole};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  planner chart plan.json -o step.html\n  planner chart plan.json --show memory -o memory.svg"
)]
pub(crate) struct ChartArgs {
    /// Plans, or timelines that `planner simulate -o` or `executor run --timeline` wrote.
    #[arg(value_name = "PLAN|TIMELINE", required = true, num_args = 1..=8)]
    pub(crate) inputs: Vec<PathBuf>,
    /// The picture: .svg, .png, .pdf, .html (to look into), or .json (a Chrome trace for Perfetto); of memory .svg, .png,
    /// .pdf or .pickle (a snapshot for PyTorch's memory viewer).
    #[arg(short, long, value_name = "FILE.{svg,png,pdf,html,json,pickle}")]
    pub(crate) output: PathBuf,
    /// What it shows.
    #[arg(long, value_enum, ignore_case = true, default_value = "timeline")]
    pub(crate) show: Shown,
    /// Show the step from this time on, such as `1.5s` or `200ms`.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, conflicts_with = "first_micro_batches", allow_negative_numbers = true)]
    pub(crate) from: Option<Nanos>,
    /// Show the step until this time.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, conflicts_with = "first_micro_batches", allow_negative_numbers = true)]
    pub(crate) to: Option<Nanos>,
    #[command(flatten)]
    pub(crate) look: LookArgs,
}

/// How a timeline is drawn.
#[derive(Debug, Args)]
#[command(next_help_heading = "Look")]
pub(crate) struct LookArgs {
    /// Colours of an SVG, PNG or PDF; a page follows the browser.
    #[arg(long, value_enum, ignore_case = true, default_value = "light")]
    pub(crate) theme: ThemeArg,
    /// Width of an SVG, PNG or PDF, in pixels [default: by what is shown].
    #[arg(long, value_name = "PIXELS", value_parser = whole::<u32, 200, 20_000>, allow_negative_numbers = true)]
    pub(crate) width: Option<u32>,
    /// Show the step until its first N micro-batches are through.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) first_micro_batches: Option<u32>,
    /// Exchanges and messages of each rank, in an SVG, PNG or PDF: `auto` leaves them out of more than 32 ranks.
    #[arg(long, value_enum, ignore_case = true, default_value = "auto")]
    pub(crate) lanes: LanesArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LanesArg {
    /// Where there is room.
    Auto,
    /// Always.
    Shown,
    /// Never.
    Hidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// What every rank does when.
    Timeline,
    /// What fills the memory of every pipeline rank of a plan.
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ThemeArg {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner collective all-reduce --ring --ranks 4 -o ring.svg")]
pub(crate) struct CollectiveArgs {
    /// Which: all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, scatter, gather, reduce or
    /// send-receive.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Ranks that take part, 64 at most: the picture grows with them.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u32, 1, 64>, allow_negative_numbers = true)]
    pub(crate) ranks: u32,
    /// Draw the steps of a ring: of all-reduce, all-gather and reduce-scatter.
    #[arg(long)]
    pub(crate) ring: bool,
    /// The picture: .svg, .png or .pdf.
    #[arg(short, long, value_name = "FILE.{svg,png,pdf}")]
    pub(crate) output: PathBuf,
    /// Colours.
    #[arg(long, value_enum, ignore_case = true, default_value = "light")]
    pub(crate) theme: ThemeArg,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  planner schedule 1f1b --stages 4 --micro-batches 8\n  planner schedule zb-h1 --stages 4 --micro-batches 8 --format csv -o order.svg"
)]
pub(crate) struct ScheduleArgs {
    /// A family (see `planner list schedules`), or `auto` for one made for these costs.
    #[arg(value_name = "NAME", required_unless_present = "from", conflicts_with = "from")]
    pub(crate) name: Option<String>,
    /// A pipeline-order CSV, as PyTorch writes it, to check and to time.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) from: Option<PathBuf>,
    /// Pipeline ranks.
    #[arg(long, value_name = "P", value_parser = parse_count::<u32>, allow_negative_numbers = true, conflicts_with = "from")]
    pub(crate) stages: Option<u32>,
    /// Micro-batches (chunks, gradient accumulation steps).
    #[arg(long, value_name = "M", value_parser = parse_count::<u32>, allow_negative_numbers = true, conflicts_with = "from")]
    pub(crate) micro_batches: Option<u32>,
    /// Stages on each rank [default: 2 for families with several stages a rank, else 1].
    #[arg(long, visible_alias = "vpp", value_name = "V", value_parser = parse_count::<u32>, allow_negative_numbers = true, conflicts_with = "from")]
    pub(crate) virtual_stages: Option<u32>,
    /// With `auto`: micro-batches whose activations a rank may keep, counted once for each of its stages, and after
    /// the input gradient by the share of `--kept-for-weight-grad` [default: twice what 1F1B keeps, 2 P V].
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true, conflicts_with = "from")]
    pub(crate) max_in_flight: Option<u32>,
    /// With `auto`: the share of a micro-batch's activations that is kept from its input gradient to its
    /// weight gradient; the rest is free after the input gradient [default: 0.5].
    #[arg(long, value_name = "SHARE", value_parser = number::<1>, allow_negative_numbers = true, conflicts_with = "from")]
    pub(crate) kept_for_weight_grad: Option<f64>,
    /// Cost of a stage's forward.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = whole::<u64, 0, LARGEST_COST>, allow_negative_numbers = true)]
    pub(crate) forward: u64,
    /// Cost of a stage's gradient of activations.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = whole::<u64, 0, LARGEST_COST>, allow_negative_numbers = true)]
    pub(crate) input_grad: u64,
    /// Cost of a stage's gradient of parameters; a full backward costs both.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = whole::<u64, 0, LARGEST_COST>, allow_negative_numbers = true)]
    pub(crate) weight_grad: u64,
    /// Cost of a message between ranks.
    #[arg(long, value_name = "T", default_value_t = 0, value_parser = whole::<u64, 0, LARGEST_COST>, allow_negative_numbers = true)]
    pub(crate) send: u64,
    /// Add sends and receives to the order.
    #[arg(long)]
    pub(crate) communication: bool,
    /// Also draw it: .svg, .png, .pdf, .html or .json (a Chrome trace); or write it as PyTorch's pipeline-order CSV:
    /// .csv.
    #[arg(short, long, value_name = "FILE.{svg,png,pdf,html,json,csv}")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// Columns of the text, beyond which rows are cut [default: the terminal's; whole rows where there is none].
    #[arg(long, value_name = "COLUMNS", value_parser = whole::<usize, 20, 100_000>, allow_negative_numbers = true)]
    pub(crate) columns: Option<usize>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "text", help_heading = OUTPUT)]
    pub(crate) format: ScheduleFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleFormat {
    /// PyTorch's pipeline-order CSV.
    Csv,
    /// A grid for people, with what it takes.
    Text,
    /// JSON for programs.
    Json,
}
