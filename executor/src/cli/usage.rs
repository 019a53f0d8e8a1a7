//! Errors of the command line, with tips about what was likely meant.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};
use command_line::usage::{as_text, example, given, has, named, with_tip};
use ir::text::folded;

use super::args::Cli;

/// Options of other programs, in lower case without hyphens, and tips about options here.
const INSTEAD: &[(&[&str], &str)] = &[
    (
        &[
            "resume",
            "resumefrom",
            "resumefromcheckpoint",
            "load",
            "save",
            "ckpt",
            "ckptdir",
            "savedir",
            "outputdir",
        ],
        "`--checkpoint DIR` keeps checkpoints, and goes on from the newest one that is there",
    ),
    (&["saveinterval", "savesteps", "saveevery"], "it is `--checkpoint-every N` here"),
    (&["savetotallimit", "keep"], "it is `--keep-checkpoints N` here"),
    (
        &["epochs", "numepochs", "iters", "iterations", "trainiters", "maxsteps"],
        "it is `--steps N` here",
    ),
    (&["lr"], "it is `--learning-rate RATE` here"),
    (&["lrwarmupsteps", "warmup", "warmupiters"], "it is `--warmup-steps N` here"),
    (&["clipgrad", "gradclip", "maxgradnorm"], "it is `--max-gradient-norm NORM` here"),
    (
        &["dtype", "bf16", "fp16", "fp32", "amp"],
        "it is `--precision bf16`, or another format, here",
    ),
    (&["device", "gpu", "cuda", "accelerator"], "it is `--backend cuda`, or cpu or wgpu, here"),
    (&["datapath", "dataset", "traindata", "corpus"], "it is `--data FILE` here"),
    (&["initcheckpoint", "pretrained", "modelpath"], "it is `--weights PATH` here"),
    (&["trace", "profile", "profiler"], "it is `--timeline FILE` here"),
    (
        &["loginterval", "logevery", "wandb", "tensorboard", "reportto", "logdir", "log"],
        "`--format json` prints a line for each step, which other programs read",
    ),
    (
        &["verbose", "v", "vv", "debug", "quiet", "q", "silent"],
        "lines for people are on stderr, results on stdout: `2>/dev/null` leaves the former out",
    ),
    (
        &["dryrun", "check", "validate", "noop"],
        "a plan is checked before it runs; `planner simulate` draws its step without running it",
    ),
    (
        &["size", "sizes", "bytes", "messagesize", "b", "e"],
        "sizes are those from `--min-bytes` to `--max-bytes`",
    ),
    (
        &["fast", "short", "quick"],
        "`executor check --minutes M` takes no longer than M minutes, `executor calibrate --quick` takes seconds",
    ),
    (
        &[
            "n",
            "np",
            "ranks",
            "nproc",
            "nprocpernode",
            "gpus",
            "numgpus",
            "tp",
            "pp",
            "dp",
            "layout",
            "globalbatchsize",
            "microbatchsize",
            "batchsize",
            "seqlen",
            "zero",
            "recompute",
            "schedule",
            "optimizer",
        ],
        "that is the plan's: `planner evaluate MODEL --gpus N --layout LAYOUT -o plan.json` makes one",
    ),
];

/// Values of other programs, normalized, by option, and tips about values here.
const CHOICES: &[(&str, &[&str], &str)] = &[
    (
        "--backend",
        &["gpu", "nvidia", "h100", "rocm", "amd", "metal", "vulkan"],
        "`cuda` is for NVIDIA's GPUs, `wgpu` for those of any make",
    ),
    (
        "--reduction",
        &["mean", "avg", "average"],
        "a mean is `sum`, divided by the number of ranks by who wants it",
    ),
    (
        "--communicator",
        &["gloo", "none", "torch"],
        "`local` is for ranks that are threads, `mpi` for processes, `nccl` for those on GPUs",
    ),
];

/// Commands of other programs, and tips about commands here.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["train", "start", "execute", "launch"], "that is `executor run plan.json`"),
    (&["bench", "benchmark", "doctor", "info", "test", "verify"], "that is `executor check`"),
    (&["collective", "nccltests", "allreduce"], "that is `executor collectives`"),
    (&["convert", "save"], "that is `executor export CHECKPOINT plan.json`"),
    (
        &[
            "search", "evaluate", "plan", "explain", "chart", "compare", "sweep", "simulate",
            "import", "lint", "inspect", "list", "schedule", "report", "validate",
        ],
        "that is a command of `planner`",
    ),
];

/// Reads the command line.
///
/// # Errors
///
/// The error, with a tip about what was likely meant.
pub(super) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let mut program = Cli::command();
    let matches = program
        .try_get_matches_from_mut(words)
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    matches.map_err(|error| {
        let words = as_text(words);
        let tip = tip(&error, &program, &words);
        with_tip(error, &program, &words, tip)
    })
}

/// A tip about what was likely meant, where it can be told.
fn tip(error: &clap::Error, program: &Command, words: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            given(error, ContextKind::InvalidArg).and_then(|it| option(program, words, &it))
        }
        ErrorKind::InvalidSubcommand => {
            given(error, ContextKind::InvalidSubcommand).and_then(|it| command(&it))
        }
        ErrorKind::MissingRequiredArgument => {
            named(program, words).and_then(|of| example("executor", of, error))
        }
        ErrorKind::InvalidValue => {
            let chosen = given(error, ContextKind::InvalidValue)?;
            let option = given(error, ContextKind::InvalidArg)?;
            let rows = CHOICES.iter().filter(|(of, ..)| option.starts_with(of));
            let mut rows = rows.filter(|(_, also, _)| also.contains(&folded(&chosen).as_str()));
            rows.next().map(|(.., tip)| (*tip).to_owned())
        }
        _ => None,
    }
}

fn option(program: &Command, words: &[String], given: &str) -> Option<String> {
    if !given.starts_with('-') {
        return is_json(given).then(|| "a run is of one plan".to_owned());
    }
    let flag = given.split_once('=').map_or(given, |(flag, _)| flag);
    let of = named(program, words);
    let mut others = program.get_subcommands().filter(|other| !other.is_hide_set());
    let elsewhere = others.find(|other| has(other, flag));
    match (of, elsewhere) {
        (None, Some(other)) => {
            Some(format!("a command comes first, such as `executor {}`", other.get_name()))
        }
        // `INSTEAD` comes first: the ranks of other programs are the plan's, not those of `collectives`.
        (Some(of), Some(other)) => {
            let (own, has_it) = (of.get_name(), other.get_name());
            let told =
                || format!("`{flag}` is an option of `executor {has_it}`, not of `executor {own}`");
            found(INSTEAD, flag).filter(|_| own == "run").or_else(|| Some(told()))
        }
        _ => found(INSTEAD, flag),
    }
}

fn is_json(given: &str) -> bool {
    Path::new(given).extension().is_some_and(|it| it.eq_ignore_ascii_case("json"))
}

fn command(given: &str) -> Option<String> {
    if is_json(given) {
        return Some(format!("a command comes first: `executor run {given}`"));
    }
    found(COMMANDS, given)
}

fn found(table: &[(&[&str], &str)], given: &str) -> Option<String> {
    let folded = folded(given);
    let row = table.iter().find(|(also, _)| also.contains(&folded.as_str()));
    row.map(|(_, tip)| (*tip).to_owned())
}
