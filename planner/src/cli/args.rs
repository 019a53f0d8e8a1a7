//! Arguments of the command line.

mod format;
mod headings;
mod import;
mod measured;
mod pictures;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ir::layout::PartialLayout;
use ir::replication::Straggler;

use super::export::ExportArgs;
use super::layout::LayoutArgs;
use super::over::Over;
use super::questions::{FailureArgs, QuestionArgs};
use super::report::ReportArgs;
use super::setting::{AdapterArgs, PartArgs, TrainingArgs};
use super::values::{parse_count, parse_gpus, parse_named, parse_time_limit, whole};
pub(crate) use format::Format;
use headings::{OUTPUT, SEARCH};
pub(crate) use import::{FailOn, ImportArgs, LintArgs, LintFormat, ToolSettingsArgs};
pub(crate) use measured::{CalibrateArgs, ValidateArgs};
pub(crate) use pictures::{
    ChartArgs, CollectiveArgs, LanesArg, LookArgs, ScheduleArgs, ScheduleFormat, Shown, ThemeArg,
};

/// How to lay a model out on GPUs, how fast it will run, whether it fits, and why.
#[derive(Debug, Parser)]
#[command(name = "planner", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find the best layouts of a model on a number of GPUs.
    Search(Box<SearchArgs>),
    /// Time and memory of a layout that you name; what you leave open is chosen best.
    Evaluate(Box<EvaluateArgs>),
    /// Two plans or layouts, term by term: which is faster, and what causes the difference.
    Compare(Box<CompareArgs>),
    /// The best plan for each of several numbers of GPUs, sequences, batches, bandwidths or memories.
    Sweep(Box<SweepArgs>),
    /// Where every millisecond and every byte of a plan goes, and what the runners-up lose.
    Explain(ExplainArgs),
    /// A page of a plan and its runners-up: time against memory, what each spends them on, and two plans side by side
    /// with their timelines.
    Report(ReportArgs),
    /// The step of a plan on a timeline, rank by rank, and what its time depends on.
    Simulate(SimulateArgs),
    /// Execute a plan: checks it and starts `executor run` with it.
    Run(RunArgs),
    /// Write a plan for a training tool: the tool's settings, and a script that starts it on every rank.
    Export(ExportArgs),
    /// Make a plan from the settings of a training tool: a launch script, or its arguments.
    Import(ImportArgs),
    /// Judge the settings of a run: what cannot run, what is wasteful and by how much, and what is better.
    Lint(LintArgs),
    /// Draw a plan or a timeline; several timelines one below the other.
    Chart(ChartArgs),
    /// Draw a collective: who holds what before and after, or the steps of a ring.
    Collective(CollectiveArgs),
    /// The order of actions of a pipeline schedule: generated, or someone else's from a CSV.
    Schedule(ScheduleArgs),
    /// Predictions held against measured training steps and kernels.
    Validate(ValidateArgs),
    /// Constants of your own machine, as a framework or cluster file, from measured steps, profiles or the output of
    /// nccl-tests.
    Calibrate(CalibrateArgs),
    /// What a model consists of: parameters, blocks, operations.
    Inspect(InspectArgs),
    /// What is known by name: models, architectures, clusters, frameworks, schedules, rules of `lint`.
    List(ListArgs),
    /// Every system of parallel training, with the command that plans it and the one that runs it, on models
    /// that a laptop runs.
    Systems(SystemsArgs),
    /// Serve search, evaluate, explain, compare, lint and export to agents: the Model Context Protocol on stdin and
    /// stdout.
    Mcp,
    /// Print a completion script for a shell, which offers the names that ship too.
    #[command(
        after_help = "Example:\n  planner completions bash > ~/.local/share/bash-completion/completions/planner"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// What is trained, and on what.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProblemArgs {
    /// A model that ships, by name (see `planner list models`); a Hugging Face `config.json` or its folder; a
    /// repository of the hub that was fetched; or a native graph.
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// Number of GPUs.
    #[arg(long, value_name = "N", value_parser = parse_gpus, allow_negative_numbers = true)]
    pub(crate) gpus: u32,
    #[command(flatten)]
    pub(crate) setting: TrainingArgs,
    /// Time after which the search ends with the best so far, such as `5s`, `500ms` or `2m`.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, allow_negative_numbers = true, help_heading = SEARCH)]
    pub(crate) time_limit: Option<Duration>,
    /// Threads of the search; the result does not depend on it [default: all].
    #[arg(long, value_name = "N", value_parser = whole::<usize, 1, 4096>, allow_negative_numbers = true, help_heading = SEARCH)]
    pub(crate) threads: Option<usize>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table", help_heading = OUTPUT)]
    pub(crate) format: Format,
    /// Also write the best plan to a file (.json), or a report of the plans as a page (.html).
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) output: Option<PathBuf>,
    /// Print nothing on stderr but errors.
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  planner search llama-3.1-70b --gpus 64\n  planner search path/to/config.json --gpus 256 --cluster h200 --seq-len 32k -o plan.json"
)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) problem: ProblemArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
    /// How many plans to show, each of another kind. Plans within 3 % count as tied, and the simplest of them is
    /// shown.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = whole::<usize, 1, 1000>, help_heading = SEARCH)]
    pub(crate) top: usize,
    /// Choose for each operator the dimensions along which it is split over all GPUs, instead of one layout for all
    /// blocks: batch, features, channels, heads, sequence, rows and columns of images.
    #[arg(long, conflicts_with_all = ["LayoutArgs", "QuestionArgs", "FailureArgs", "output"], help_heading = SEARCH)]
    pub(crate) per_operator: bool,
    #[command(flatten)]
    pub(crate) questions: QuestionArgs,
    #[command(flatten)]
    pub(crate) failures: FailureArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner evaluate llama-3.1-70b --gpus 64 --layout tp8-pp4-dp2")]
pub(crate) struct EvaluateArgs {
    /// Degrees, as in `tp8-pp4-dp2` or `tp8-sp-cp2-a2a-ep4-pp2-vpp2-dp4-zero1-mbs1`.
    #[arg(long = "layout", value_name = "LAYOUT")]
    pub(crate) named: PartialLayout,
    #[command(flatten)]
    pub(crate) problem: ProblemArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  planner compare plan.json tp4-dp2\n  planner compare tp8-pp4 tp4-pp4 --model llama-3.1-70b --gpus 64"
)]
pub(crate) struct CompareArgs {
    /// A plan that `planner search -o` wrote; or a layout, as in `tp8-pp4-dp2`, for the problem of the other plan.
    #[arg(value_name = "PLAN|LAYOUT")]
    pub(crate) a: String,
    /// What to compare it with.
    #[arg(value_name = "PLAN|LAYOUT")]
    pub(crate) b: String,
    /// For two layouts: the model, by name or by path, as `planner search` takes it.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    /// For two layouts: the number of GPUs.
    #[arg(long, value_name = "N", value_parser = parse_gpus, allow_negative_numbers = true)]
    pub(crate) gpus: Option<u32>,
    #[command(flatten)]
    pub(crate) setting: TrainingArgs,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table", help_heading = OUTPUT)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  planner sweep llama-3.1-8b --over gpus=8,16,32,64 -o sweep.svg"
)]
pub(crate) struct SweepArgs {
    /// A model that ships, by name (see `planner list models`); a Hugging Face `config.json` or its folder; a
    /// repository of the hub that was fetched; or a native graph.
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// What is varied, with its values: gpus, seq-len, batch, bandwidth (between nodes, as a multiple of the
    /// cluster's) or memory (GiB of a GPU).
    #[arg(long, value_name = "WHAT=V,V,..")]
    pub(crate) over: Over,
    /// Number of GPUs, where that is not varied.
    #[arg(long, value_name = "N", value_parser = parse_gpus, allow_negative_numbers = true)]
    pub(crate) gpus: Option<u32>,
    #[command(flatten)]
    pub(crate) setting: TrainingArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
    /// Also draw it: .svg, .png or .pdf.
    #[arg(short, long, value_name = "FILE.{svg,png,pdf}", help_heading = OUTPUT)]
    pub(crate) output: Option<PathBuf>,
    /// Colours.
    #[arg(long, value_enum, ignore_case = true, default_value = "light", help_heading = OUTPUT)]
    pub(crate) theme: ThemeArg,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table", help_heading = OUTPUT)]
    pub(crate) format: Format,
    /// Print nothing on stderr but errors.
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  planner search llama-3.1-8b --gpus 8 -o plan.json\n  planner explain plan.json"
)]
pub(crate) struct ExplainArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner simulate plan.json -o timeline.json")]
pub(crate) struct SimulateArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Also write the timeline to a file, which Perfetto and `planner chart` open.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Also simulate a step in which the passes of one rank take longer by a factor: 1:4 slows rank 1 down to a
    /// quarter, as `executor run --straggler` does.
    #[arg(long, value_name = "RANK:FACTOR", value_parser = parse_named::<Straggler>)]
    pub(crate) straggler: Option<Straggler>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table", help_heading = OUTPUT)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner run plan.json --steps 10")]
pub(crate) struct RunArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Further arguments for the executor; `executor run --help` lists them.
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) executor: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner inspect deepseek-v3")]
pub(crate) struct InspectArgs {
    /// A model that ships, by name (see `planner list models`); a Hugging Face `config.json` or its folder; a
    /// repository of the hub that was fetched; or a native graph.
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// Tokens in a sequence [default: what the model was made for, at most 8192].
    #[arg(long, value_name = "S", value_parser = parse_count::<u64>, allow_negative_numbers = true)]
    pub(crate) seq_len: Option<u64>,
    /// Read a Hugging Face configuration as one of this family, where its own is not known; fields that are not read
    /// are reported.
    #[arg(long = "as", value_name = "FAMILY")]
    pub(crate) read_as: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    #[command(flatten)]
    pub(crate) adapters: AdapterArgs,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table", help_heading = OUTPUT)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner list models")]
pub(crate) struct ListArgs {
    /// What to list.
    #[arg(value_enum, ignore_case = true)]
    pub(crate) what: Listed,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner systems --format json")]
pub(crate) struct SystemsArgs {
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    /// Clusters that `--cluster` takes by name.
    #[value(aliases = ["cluster", "gpus", "gpu", "hardware"])]
    Clusters,
    /// Frameworks that `--framework` takes by name.
    #[value(alias = "framework")]
    Frameworks,
    /// Models that ship, which commands take by name.
    #[value(alias = "model")]
    Models,
    /// Architectures that are read.
    #[value(alias = "architecture")]
    Architectures,
    /// Pipeline schedules.
    #[value(alias = "schedule")]
    Schedules,
    /// What `planner lint` looks for.
    Rules,
}
