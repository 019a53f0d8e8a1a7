//! Arguments of what reads measurements.

use std::path::PathBuf;

use clap::Args;

use super::format::Format;
use crate::cli::values::parse_count;

/// Predictions held against measured training steps and kernels.
///
/// Every row of every file is predicted, or reported with the reason why it cannot be. Errors are shares of
/// what was measured.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  planner validate --framework megatron-core -o accuracy.svg")]
pub(crate) struct ValidateArgs {
    /// A folder that has `runs`, with JSON lists of measured steps and tables of the vTrain project, or
    /// `kernels`, with tables of matrix products, attention and collectives [default: the measured steps that
    /// ship with the planner].
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Predict all with this framework, by name or a file of your own, such as `planner calibrate` writes [default:
    /// what ran each row].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) framework: Option<String>,
    /// Also calibrate on this many steps of each framework and kind of GPU, for each file, and predict the others.
    #[arg(long, value_name = "N", value_parser = parse_count::<usize>)]
    pub(crate) after_steps: Option<usize>,
    /// Fail where the mean error of a file is above what this JSON file allows:
    /// `{"runs_a.json": {"step_time_seconds": 0.05}, "choices": {"mean_regret": 0.01}}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) at_most: Option<PathBuf>,
    /// Also draw predicted against measured values: .svg, .png or .pdf.
    #[arg(short, long, value_name = "FILE.{svg,png,pdf}")]
    pub(crate) output: Option<PathBuf>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    pub(crate) format: Format,
}

/// Constants of your own machine, from what other tools measured on it.
///
/// Times of one to ten training steps, each a row as `planner validate` reads them, refit the constants of the
/// framework that ran them: `--framework FILE` predicts and searches with what is written. So do traces of PyTorch's
/// profiler, with the plan that ran. Tables of nccl-tests refit the network of a cluster: `--cluster FILE`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  planner calibrate --from steps.json -o mine.json\n  \
    planner calibrate --from all_reduce_perf.txt alltoall_perf.txt --cluster h100 -o cluster.json\n  \
    planner calibrate --from rank0.json rank1.json --plan plan.json --chart both.svg -o mine.json")]
pub(crate) struct CalibrateArgs {
    /// What was measured: a JSON list of steps; outputs of nccl-tests; or traces of PyTorch's profiler (`.json`,
    /// `.json.gz`).
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// The file that the framework or the cluster is written to.
    #[arg(short, long, value_name = "FILE.json")]
    pub(crate) output: Option<PathBuf>,
    /// The framework that ran the steps, by name or a file [default: what the rows say].
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) framework: Option<String>,
    /// The cluster that was measured, a preset or a file; its network is refitted to tables of nccl-tests.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) cluster: Option<String>,
    /// The plan whose steps a profiler recorded (`planner evaluate .. -o`, `planner import .. -o`).
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan: Option<PathBuf>,
    /// Also draw the plan's timeline above the one that was recorded.
    #[arg(long, value_name = "FILE.{svg,png,pdf,html}", requires = "plan")]
    pub(crate) chart: Option<PathBuf>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    pub(crate) format: Format,
}
