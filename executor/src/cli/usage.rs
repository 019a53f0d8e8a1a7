//! What is wrong with a command line, and what was likely meant by it.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::args::Cli;

/// Options that other programs have, without hyphens and small, and what to type here.
const INSTEAD: &[(&[&str], &str)] = &[
    (
        &["resume", "resumefrom", "resumefromcheckpoint", "load", "ckpt", "savedir", "outputdir"],
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

/// Commands by other names.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["train", "start", "execute", "launch"], "that is `executor run plan.json`"),
    (&["bench", "benchmark", "doctor", "info", "test", "verify"], "that is `executor check`"),
    (&["collective", "nccltests", "allreduce"], "that is `executor collectives`"),
    (&["convert", "save"], "that is `executor export CHECKPOINT plan.json`"),
    (&["search", "evaluate", "plan", "explain", "chart"], "that is a command of `planner`"),
];

/// Reads the command line.
///
/// # Errors
///
/// What is wrong, with what was likely meant as a tip.
pub(super) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words).map_err(|error| {
        let error = error.with_cmd(&Cli::command());
        let words: Vec<String> =
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        with_tip(error, &words)
    })
}

fn with_tip(mut error: clap::Error, words: &[String]) -> clap::Error {
    let invalid = |kind| match error.get(kind) {
        Some(ContextValue::String(given)) => Some(given.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            invalid(ContextKind::InvalidArg).and_then(|given| option(&given))
        }
        ErrorKind::InvalidSubcommand => {
            invalid(ContextKind::InvalidSubcommand).and_then(|given| command(&given))
        }
        ErrorKind::MissingRequiredArgument => words.get(1).and_then(|name| example(name)),
        _ => None,
    };
    if error.kind() == ErrorKind::UnknownArgument {
        // That a word with hyphens can be a value, as clap says, no command here has a use for.
        error.remove(ContextKind::Suggested);
    }
    if let Some(tip) = tip {
        for kind in [
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedValue,
        ] {
            error.remove(kind);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// An example of a command, from its help.
fn example(name: &str) -> Option<String> {
    let cli = Cli::command();
    let help = cli.find_subcommand(name)?.get_after_help()?.to_string();
    let line = help.lines().map(str::trim).find(|line| line.starts_with("executor "))?;
    Some(format!("for example: {line}"))
}

fn option(given: &str) -> Option<String> {
    if !given.starts_with('-') {
        return is_json(given).then(|| "a run is of one plan".to_owned());
    }
    let flag = given.split_once('=').map_or(given, |(flag, _)| flag);
    found(INSTEAD, flag)
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
    let folded: String =
        given.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let row = table.iter().find(|(also, _)| also.contains(&folded.as_str()));
    row.map(|(_, tip)| (*tip).to_owned())
}
