//! Arguments of commands that read settings of other tools.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use planner_tools::interchange::Target;

use crate::cli::setting::PartArgs;
use crate::cli::values::{one_of, parse_batch, parse_count, parse_gpus, parse_variable, whole};

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  planner import pretrain.sh --model llama-3.1-8b --gpus 64 -o plan.json"
)]
pub(crate) struct ImportArgs {
    /// A launch script, the arguments in it, a manifest of a Kubernetes job, or a tool's own file: DeepSpeed's JSON,
    /// accelerate's YAML, the Trainer's arguments. Files that it names are read too.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The model that it trains, by name or by path, as `planner search` takes it.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) settings: ToolSettingsArgs,
    /// A preset (see `planner list clusters`) or a cluster file.
    #[arg(long, value_name = "NAME|FILE", default_value = "h100")]
    pub(crate) cluster: String,
    /// Write the plan to a file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What settings of other tools do not say themselves.
#[derive(Debug, Args)]
pub(crate) struct ToolSettingsArgs {
    /// The tool whose settings these are [default: recognised from the contents].
    #[arg(long, value_name = "TOOL", value_parser = one_of(Target::imported(), Target::name))]
    pub(crate) from: Option<Target>,
    /// Number of GPUs, where the settings do not say.
    #[arg(long, value_name = "N", value_parser = parse_gpus, allow_negative_numbers = true)]
    pub(crate) gpus: Option<u32>,
    /// Tokens in a sequence, where the settings do not say.
    #[arg(long, value_name = "S", value_parser = parse_count::<u64>, allow_negative_numbers = true)]
    pub(crate) seq_len: Option<u64>,
    /// Sequences of a micro-batch, where the settings do not say.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) micro_batch_size: Option<u32>,
    /// Sequences in a step, where the settings do not say.
    #[arg(long, value_name = "B", value_parser = parse_batch, allow_negative_numbers = true)]
    pub(crate) global_batch_size: Option<u64>,
    /// Pipeline-parallel ranks, where the settings do not say: DeepSpeed's are in the model's code.
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    pub(crate) pp: Option<u32>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// The value of a variable that a script does not set, or sets only in a branch.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner lint pretrain.sh --model llama-3.1-8b --gpus 64")]
pub(crate) struct LintArgs {
    /// A launch script of a training tool, its arguments, or a plan.
    #[arg(value_name = "FILE|PLAN")]
    pub(crate) file: PathBuf,
    /// The model that it trains, by name or by path, as `planner search` takes it; a plan has its own.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: ToolSettingsArgs,
    /// A preset (see `planner list clusters`) or a cluster file; a plan has its own [default: h100].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cluster: Option<String>,
    /// Form of the result [default: by the ending of `--output`, else text].
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) format: Option<LintFormat>,
    /// Least severity with which a finding makes the exit code 1.
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        value_name = "SEVERITY",
        default_value = "warning"
    )]
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
