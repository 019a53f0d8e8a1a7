//! Arguments of the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ir::layout::PartialLayout;
use ir::replication::Straggler;
use planner::interchange::Target;

use super::export::ExportArgs;
use super::layout::LayoutArgs;
use super::over::Over;
use super::questions::QuestionArgs;
use super::setting::{AdapterArgs, PartArgs, SettingArgs};
use super::values::{
    LARGEST_COST, number, one_of, parse_count, parse_time_limit, parse_variable, whole,
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
    /// The step of a plan on a timeline, rank by rank, and what its time depends on.
    Simulate(SimulateArgs),
    /// Execute a plan: checks it and starts `executor run` with it.
    Run(RunArgs),
    /// Write a plan for the tool that trains: its settings, and what starts them on every rank.
    Export(ExportArgs),
    /// Make a plan of the settings of a tool that trains: a launch script, or its arguments.
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
    /// Constants of your own machine, from measured steps, profiles or what nccl-tests print: a framework or cluster file.
    Calibrate(CalibrateArgs),
    /// What a model consists of: parameters, blocks, operations.
    Inspect(InspectArgs),
    /// What is known by name: clusters, frameworks, models, schedules.
    List(ListArgs),
    /// Every system of parallel training, with the command that plans it and the one that runs it, on models
    /// that a laptop runs.
    Systems(SystemsArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    Table,
    /// JSON for programs.
    Json,
}

/// What is trained, and on what.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProblemArgs {
    /// A Hugging Face `config.json`, its folder, or a native graph.
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// Number of GPUs.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) gpus: u32,
    #[command(flatten)]
    pub(crate) setting: SettingArgs,
    /// Time after which the search ends with the best so far, such as `5s`, `500ms` or `2m`.
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, allow_negative_numbers = true)]
    pub(crate) time_limit: Option<Duration>,
    /// Threads of the search; the result does not depend on it [default: all].
    #[arg(long, value_name = "N", value_parser = whole::<usize, 1, 4096>, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
    /// Also write the best plan to a file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print nothing on stderr but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) problem: ProblemArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
    /// How many plans to show, each of another kind: of those that the model cannot tell from the fastest, the
    /// simplest stands first.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = whole::<usize, 1, 1000>)]
    pub(crate) top: usize,
    /// Memory of a GPU to stay free, in GiB [default: what nine of ten comparable measured peaks were above their
    /// predictions at most].
    #[arg(long, value_name = "GIB", value_parser = number::<100_000>, allow_negative_numbers = true)]
    pub(crate) headroom: Option<f64>,
    #[command(flatten)]
    pub(crate) questions: QuestionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    #[command(flatten)]
    pub(crate) problem: ProblemArgs,
    /// Degrees, as in `tp8-pp4-dp2` or `tp8-sp-cp2-a2a-ep4-pp2-vpp2-dp4-zero1-mbs1`.
    #[arg(long = "layout", value_name = "LAYOUT")]
    pub(crate) named: PartialLayout,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// A plan that `planner search -o` wrote, or a layout, as in `tp8-pp4-dp2`: for the problem of the other's plan.
    #[arg(value_name = "PLAN|LAYOUT")]
    pub(crate) a: String,
    /// Another.
    #[arg(value_name = "PLAN|LAYOUT")]
    pub(crate) b: String,
    /// Of two layouts: a Hugging Face `config.json`, its folder, or a native graph.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    /// Of two layouts: number of GPUs.
    #[arg(long, value_name = "N", requires = "model", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) gpus: Option<u32>,
    #[command(flatten)]
    pub(crate) setting: SettingArgs,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// A Hugging Face `config.json`, its folder, or a native graph.
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// What is varied, with its values: gpus, seq-len, batch, bandwidth (times the cluster's, between nodes) or
    /// memory (GiB of a GPU).
    #[arg(long, value_name = "WHAT=V,V,..")]
    pub(crate) over: Over,
    /// Number of GPUs, where that is not varied.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) gpus: Option<u32>,
    #[command(flatten)]
    pub(crate) setting: SettingArgs,
    #[command(flatten)]
    pub(crate) layout: LayoutArgs,
    /// Also draw it.
    #[arg(short, long, value_name = "FILE.{svg,png}")]
    pub(crate) output: Option<PathBuf>,
    /// Colours.
    #[arg(long, value_enum, default_value = "light")]
    pub(crate) theme: ThemeArg,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Also write the timeline to a file, which Perfetto and `planner chart` open.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) jitter: JitterArgs,
    /// Also say how fast all are if the passes of a rank take so many times as long: 1:4 slows rank 1 down to
    /// a quarter, as `executor run --straggler` does.
    #[arg(long, value_name = "RANK:FACTOR")]
    pub(crate) straggler: Option<Straggler>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// What may go slower than planned.
#[derive(Debug, Args)]
#[command(next_help_heading = "Jitter")]
pub(crate) struct JitterArgs {
    /// Also draw so many steps at random, and give the distribution of their times.
    #[arg(long, value_name = "N", value_parser = whole::<u32, 1, 1_000_000>, allow_negative_numbers = true)]
    pub(crate) samples: Option<u32>,
    /// Standard deviation of the time of a pass on a GPU, in per cent of it.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = number::<100>, allow_negative_numbers = true)]
    pub(crate) jitter: f64,
    /// GPUs that are slow throughout, in per cent of all.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = number::<100>, allow_negative_numbers = true)]
    pub(crate) stragglers: f64,
    /// By how much longer a slow GPU takes, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = number::<100>, allow_negative_numbers = true)]
    pub(crate) slower: f64,
    /// Where the random numbers start; the same seed gives the same steps.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A plan that `planner search -o` wrote.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// What the executor is told besides; `executor run --help` says what it takes.
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) executor: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  planner import pretrain.sh --model models/llama-3.1-8b --gpus 64 -o plan.json"
)]
pub(crate) struct ImportArgs {
    /// A launch script, the arguments in it, or a tool's own file: DeepSpeed's JSON, accelerate's YAML, the Trainer's
    /// arguments. Files that it names are read beside it.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The model that it trains: a Hugging Face `config.json`, its folder, or a short form.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// A preset (see `planner list clusters`) or a cluster file.
    #[arg(long, value_name = "NAME|FILE", default_value = "h100")]
    pub(crate) cluster: String,
    /// Write the plan to a file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What settings of other tools do not say themselves.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// The tool that it is of [default: by what is in it].
    #[arg(long, value_name = "TOOL", value_parser = one_of(Target::IMPORTED, Target::name))]
    pub(crate) from: Option<Target>,
    /// Number of GPUs, where the settings do not say.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) gpus: Option<u32>,
    /// Tokens in a sequence, where the settings do not say.
    #[arg(long, value_name = "S", value_parser = parse_count::<u64>, allow_negative_numbers = true)]
    pub(crate) seq_len: Option<u64>,
    /// Sequences of a micro-batch, where the settings do not say.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) micro_batch_size: Option<u32>,
    /// Sequences in a step, where the settings do not say.
    #[arg(long, value_name = "B", value_parser = parse_count::<u64>, allow_negative_numbers = true)]
    pub(crate) global_batch_size: Option<u64>,
    /// Pipeline-parallel ranks, where the settings do not say: DeepSpeed's are in the model's code.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) pp: Option<u32>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// The value of a variable that a script does not set.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// A launch script of a tool that trains, its arguments, or a plan.
    #[arg(value_name = "FILE|PLAN")]
    pub(crate) file: PathBuf,
    /// The model that it trains: a Hugging Face `config.json`, its folder, or a short form; a plan has its own.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// A preset (see `planner list clusters`) or a cluster file; a plan has its own [default: h100].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cluster: Option<String>,
    /// Form of the result.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: LintFormat,
    /// From which severity on findings make the exit code 1.
    #[arg(long, value_enum, value_name = "SEVERITY", default_value = "warning")]
    pub(crate) fail_on: FailOn,
    /// How many better settings near these to show at most.
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = whole::<usize, 0, 100>)]
    pub(crate) nearest: usize,
    /// Write the result to a file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintFormat {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
    /// SARIF 2.1.0, for what shows findings beside the file.
    Sarif,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// What cannot run.
    Error,
    /// What is wasteful or risky, too.
    Warning,
    /// Anything that is found.
    Note,
    /// Nothing: the exit code is 0 whatever is found.
    Never,
}

#[derive(Debug, Args)]
pub(crate) struct ChartArgs {
    /// Plans, or timelines that `planner simulate -o` or `executor run --timeline` wrote.
    #[arg(value_name = "PLAN|TIMELINE", required = true, num_args = 1..=8)]
    pub(crate) inputs: Vec<PathBuf>,
    /// The picture: .svg, .png, .html (to look into), or .json (a Chrome trace for Perfetto); of memory also .pickle (a
    /// snapshot for PyTorch's memory viewer).
    #[arg(short, long, value_name = "FILE.{svg,png,html,json,pickle}")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) picture: PictureArgs,
}

/// How a picture looks.
#[derive(Debug, Args)]
pub(crate) struct PictureArgs {
    /// What it shows.
    #[arg(long, value_enum, default_value = "timeline")]
    pub(crate) show: Shown,
    /// Colours of an SVG or PNG; a page follows the browser.
    #[arg(long, value_enum, default_value = "light")]
    pub(crate) theme: ThemeArg,
    /// Width of an SVG or PNG, in pixels [default: by what is shown].
    #[arg(long, value_name = "PIXELS", value_parser = whole::<u32, 200, 20_000>, allow_negative_numbers = true)]
    pub(crate) width: Option<u32>,
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
pub(crate) struct CollectiveArgs {
    /// Which: all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, scatter, gather, reduce or
    /// send-receive.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Ranks that take part.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) ranks: u32,
    /// Draw the steps of a ring: of all-reduce, all-gather and reduce-scatter.
    #[arg(long)]
    pub(crate) ring: bool,
    /// The picture.
    #[arg(short, long, value_name = "FILE.{svg,png}")]
    pub(crate) output: PathBuf,
    /// Colours.
    #[arg(long, value_enum, default_value = "light")]
    pub(crate) theme: ThemeArg,
}

#[derive(Debug, Args)]
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
    /// Stages on each rank [default: 2 where the family is about several, else 1].
    #[arg(long, visible_alias = "vpp", value_name = "V", value_parser = parse_count::<u32>, allow_negative_numbers = true, conflicts_with = "from")]
    pub(crate) virtual_stages: Option<u32>,
    /// With `auto`: micro-batches that a rank may keep, each of its stages counting one, and after its
    /// input gradient only what `--kept-for-weight-grad` says [default: twice what 1F1B keeps, 2 P V].
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true, conflicts_with = "from")]
    pub(crate) max_in_flight: Option<u32>,
    /// With `auto`: the share of a micro-batch's activations that is kept from its input gradient to its
    /// weight gradient; the rest is free after the input gradient [default: 0.5].
    #[arg(long, value_name = "SHARE", value_parser = number::<1>, allow_negative_numbers = true)]
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
    /// Also draw it: .svg, .png, .html or .json (a Chrome trace); or write it as PyTorch's pipeline-order CSV: .csv.
    #[arg(short, long, value_name = "FILE.{svg,png,html,json,csv}")]
    pub(crate) output: Option<PathBuf>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
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

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A Hugging Face `config.json`, its folder, or a native graph.
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
    /// Tokens in a sequence [default: what the model was made for, at most 8192].
    #[arg(long, value_name = "S", value_parser = parse_count::<u64>, allow_negative_numbers = true)]
    pub(crate) seq_len: Option<u64>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    #[command(flatten)]
    pub(crate) adapters: AdapterArgs,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// Predictions held against measured training steps and kernels.
///
/// Every row of every file is predicted, or reported with the reason why it cannot be. Errors are shares of
/// what was measured.
#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// A folder that has `runs`, with JSON lists of measured steps and tables of the vTrain project, or
    /// `kernels`, with tables of matrix products, attention and collectives [default: the measured steps that
    /// ship with the planner].
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Predict all with this framework, by name or a file of your own, such as `planner calibrate` writes [default: what
    /// ran each row].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) framework: Option<String>,
    /// Also calibrate on so many steps of each framework and kind of GPUs, of each file, and predict the others.
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>)]
    pub(crate) after_steps: Option<usize>,
    /// Fail where the mean error of a file is above what this JSON file allows:
    /// `{"runs_a.json": {"step_time_seconds": 0.05}, "choices": {"mean_regret": 0.01}}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) at_most: Option<PathBuf>,
    /// Also draw predicted against measured values: .svg or .png.
    #[arg(short, long, value_name = "FILE.{svg,png}")]
    pub(crate) output: Option<PathBuf>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// Constants of your own machine, from what other tools measured on it.
///
/// Times of one to ten training steps, each a row as `planner validate` reads them, refit the constants of the framework
/// that ran them: `--framework FILE` predicts and searches with what is written. So do traces of PyTorch's profiler and
/// exports of Nsight Systems, with the plan that ran. Tables of nccl-tests refit the network of a cluster: `--cluster FILE`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  planner calibrate --from steps.json -o mine.json\n  \
    planner calibrate --from all_reduce_perf.txt alltoall_perf.txt --cluster h100 -o cluster.json\n  \
    planner calibrate --from rank0.json rank1.json --plan plan.json --chart both.svg -o mine.json")]
pub(crate) struct CalibrateArgs {
    /// What was measured: a JSON list of steps; outputs of nccl-tests; traces of PyTorch's profiler (`.json`, `.json.gz`);
    /// or exports of Nsight Systems (`nsys export --type sqlite`).
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Where the framework or the cluster goes.
    #[arg(short, long, value_name = "FILE.json")]
    pub(crate) output: Option<PathBuf>,
    /// What ran the steps, by name or a file [default: what the rows say].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) framework: Option<String>,
    /// The cluster that was measured, a preset or a file; its network is refitted to tables of nccl-tests.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cluster: Option<String>,
    /// The plan whose steps a profiler recorded (`planner evaluate .. -o`, `planner import .. -o`).
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan: Option<PathBuf>,
    /// Also draw the plan's timeline above the one that was recorded.
    #[arg(long, value_name = "FILE.{svg,png,html}", requires = "plan")]
    pub(crate) chart: Option<PathBuf>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// What to list.
    #[arg(value_enum)]
    pub(crate) what: Listed,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SystemsArgs {
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listed {
    /// Clusters that `--cluster` takes by name.
    Clusters,
    /// Frameworks that `--framework` takes by name.
    Frameworks,
    /// Architectures that are read.
    Models,
    /// Pipeline schedules.
    Schedules,
    /// What `planner lint` looks for.
    Rules,
}
