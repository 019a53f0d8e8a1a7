//! Errors of the command line, with tips on what was likely meant.

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory};
use command_line::usage::{example, given, has, named};
use ir::layout::PartialLayout;
use ir::text::{Typeset, typeset};
use planner::names::{self, Sought, folded};

use super::args::Cli;

/// Tip for an invalid command line: about an option of another tool, an option of another command, or a value without
/// its option.
pub(super) fn tip(error: &clap::Error, command: &Command, words: &[String]) -> Option<String> {
    let given = |kind| given(error, kind);
    match error.kind() {
        ErrorKind::UnknownArgument => meant(command, words, &given(ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => {
            meant_command(words, &given(ContextKind::InvalidSubcommand)?)
        }
        ErrorKind::InvalidValue => meant_choice(error, &given(ContextKind::InvalidValue)?),
        ErrorKind::MissingRequiredArgument => layout(words)
            .or_else(|| named(command, words).and_then(|of| example("planner", of, error))),
        ErrorKind::ValueValidation => misplaced(command, words, &given(ContextKind::InvalidValue)?),
        _ => None,
    }
}

/// Tip for a value that is not among an argument's possible values.
fn meant_choice(error: &clap::Error, given: &str) -> Option<String> {
    let argument = self::given(error, ContextKind::InvalidArg)?;
    names::value_tip(&argument, given).map(str::to_owned)
}

/// Tip for `evaluate` without `--layout`: the layout of the degrees that are given as options.
fn layout(words: &[String]) -> Option<String> {
    const DEGREES: [&str; 5] = ["--tp", "--cp", "--ep", "--pp", "--dp"];
    if words.get(1)? != "evaluate" || words.iter().any(|word| word.starts_with("--layout")) {
        return None;
    }
    let degree = |flag: &&str| {
        let degree: u32 = value_of(words, flag)?.parse().ok()?;
        Some(format!("{}{degree}", flag.trim_start_matches('-')))
    };
    let degrees: Vec<String> = DEGREES.iter().filter_map(degree).collect();
    (!degrees.is_empty()).then(|| format!("these are `--layout {}`", degrees.join("-")))
}

/// Tip for an argument that the command does not accept.
fn meant(command: &Command, words: &[String], given: &str) -> Option<String> {
    let Some(of) = named(command, words) else {
        let having = command.get_subcommands().find(|other| has(other, given))?;
        return Some(format!("a command comes first, such as `planner {}`", having.get_name()));
    };
    if let Some(tip) = without_value(of, words, given) {
        return Some(tip);
    }
    if !given.starts_with('-') {
        return Some(meant_value(of, words, given));
    }
    if of.get_name() == "run" {
        return Some(format!("the plan comes first: `planner run PLAN {given} ..`"));
    }
    // For `-gpus`, clap reports only `-g`.
    let is_whole = |word: &&String| word.starts_with(given) && !word.starts_with("--");
    let whole = words.iter().find(is_whole).filter(|_| !given.starts_with("--"));
    let whole = whole.map_or(given, String::as_str);
    let flag = whole.split_once('=').map_or(whole, |(flag, _)| flag);
    let longs = of.get_arguments().filter_map(clap::Arg::get_long);
    let own = longs.map(|long| format!("--{long}")).find(|long| folded(long) == folded(flag));
    if let Some(own) = own {
        return Some(format!("it is written `{own}`"));
    }
    let value = value_of(words, flag);
    if let Some(tip) = value.and_then(|value| told_by_value(of, flag, value)) {
        return Some(tip);
    }
    if matches!(flag, "-o" | "--output") {
        return Some(format!("`planner {}` prints its result: `> FILE` keeps it", of.get_name()));
    }
    // A synonym of this command's options comes first, then options of other commands.
    let takes = |value: &str| {
        let names = |it: &clap::Arg| {
            let names = it.get_value_names().unwrap_or_default();
            names.iter().any(|name| name.split('|').any(|name| name == value))
        };
        of.get_positionals().any(names)
    };
    let alone = match folded(flag).as_str() {
        "m" | "model" | "modelname" | "modelnameorpath" | "config" => "MODEL",
        "layout" | "layouts" => "LAYOUT",
        "plan" | "plans" | "planfile" => "PLAN",
        _ => "",
    };
    if takes(alone) {
        let what = alone.to_lowercase();
        return Some(format!("a {what} stands alone: `planner {} {alone}`", of.get_name()));
    }
    if let Some(ours) = names::instead(flag, |ours| has(of, ours)) {
        return Some(format!("here it is {ours}"));
    }
    if let Some(sentence) = names::unplanned(flag, |ours| has(of, ours)) {
        return Some(sentence.to_owned());
    }
    if let Some(framework) = names::framework(flag).filter(|_| has(of, "--framework")) {
        return Some(format!("here it is `--framework {framework}`"));
    }
    let having = |long: &str| -> Vec<String> {
        let all = command.get_subcommands().filter(|other| has(other, long));
        all.map(|other| format!("`planner {}`", other.get_name())).collect()
    };
    let elsewhere = having(flag);
    let (long, all) = if elsewhere.is_empty() {
        let ours = names::flag(flag, |ours| !having(ours).is_empty())?;
        (ours, having(ours))
    } else {
        (flag, elsewhere)
    };
    let all = all.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    Some(format!("`{long}` is an option of {all}, not of `planner {}`", of.get_name()))
}

/// Value of an option: after `=`, or the next word.
fn value_of<'a>(words: &'a [String], option: &'a str) -> Option<&'a str> {
    let mut joined = words.iter().filter_map(|word| word.strip_prefix(option)?.strip_prefix('='));
    if let Some(value) = joined.next_back() {
        return Some(value);
    }
    let place = words.iter().position(|word| word == option)?;
    words.get(place + 1).map(String::as_str).filter(|word| !word.starts_with('-'))
}

/// Tip for an unknown option, derived from its value: a cluster, or settings of another tool.
fn told_by_value(of: &Command, flag: &str, value: &str) -> Option<String> {
    if let Some(cluster) = names::cluster(value).filter(|_| has(of, "--cluster")) {
        return Some(format!("a cluster is `--cluster {cluster}`"));
    }
    let path = std::path::Path::new(value);
    let ending = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    let is_of_a_tool = matches!(ending, "yaml" | "yml" | "toml" | "sh" | "sbatch" | "slurm");
    (is_of_a_tool && folded(flag).contains("config")).then(|| {
        format!("settings of other tools are read by `planner import {value} --model MODEL`")
    })
}

/// Tip for a value after an option that takes no value, or no negative value.
fn without_value(of: &Command, words: &[String], given: &str) -> Option<String> {
    let is_negative =
        given.strip_prefix('-').is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    let is_it = |word: &String| word == given || (is_negative && word.starts_with(given));
    let place = words.iter().position(is_it)?;
    let before = words.get(place.checked_sub(1)?)?;
    let long = before.strip_prefix("--")?;
    let option = of.get_arguments().find(|argument| argument.get_long() == Some(long))?;
    match (option.get_action().takes_values(), is_negative) {
        (true, true) => Some(format!("`{before}` takes no negative value")),
        (false, _) if !given.starts_with('-') => {
            let instead = match long {
                "max-seq-len" => ", and asks for the longest that fits: a length is `--seq-len`",
                _ => "",
            };
            Some(format!("`{before}` takes no value{instead}"))
        }
        _ => None,
    }
}

/// Tip for a model's name in place of an option's value.
fn misplaced(command: &Command, words: &[String], given: &str) -> Option<String> {
    let of = named(command, words)?;
    let is_model = matches!(Sought::of(given), Sought::Name(name) if names::model(name).is_some());
    is_model.then(|| format!("a model stands alone: `planner {} {given}`", of.get_name()))
}

/// The two words before `given`.
fn before<'a>(words: &'a [String], given: &str) -> Option<&'a [String; 2]> {
    let place = words.iter().position(|word| word == given)?;
    words.get(place.checked_sub(2)?..place)?.try_into().ok()
}

/// Tip for a value without an option.
fn meant_value(of: &Command, words: &[String], given: &str) -> String {
    let is_open = |flag: &str| has(of, flag) && !words.iter().any(|word| word.starts_with(flag));
    if let Some([flag, over]) = before(words, given)
        && flag == "--over"
    {
        return if over.contains('=') {
            format!("its values are one word, with commas: `--over {over},{given}`")
        } else {
            format!("what varies and its values are one word: `--over {over}={given}`")
        };
    }
    if let Some(Typeset { what, plain }) = typeset(given) {
        return format!("of `{given}`: {what}; type `{plain}`");
    }
    if let Some((name, _)) = given.split_once('=')
        && has(of, &format!("--{name}"))
    {
        return format!("an option begins with `--`: `--{given}`");
    }
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    if let Some([flag, thousands]) = before(words, given)
        && flag.starts_with("--")
        && is_number(thousands)
        && given.len() == 3
        && is_number(given)
    {
        return format!("a number is one word: `{flag} {thousands}{given}`");
    }
    if is_number(given) && is_open("--gpus") {
        return format!("the number of GPUs is `--gpus {given}`");
    }
    if given.parse::<PartialLayout>().is_ok() {
        return if is_open("--layout") {
            format!("a layout is `--layout {given}`")
        } else {
            format!("`planner evaluate MODEL --gpus N --layout {given}` takes a layout")
        };
    }
    if let Some(cluster) = names::cluster(given).filter(|_| is_open("--cluster")) {
        return format!("a cluster is `--cluster {cluster}`");
    }
    if let Some(framework) = names::framework(given).filter(|_| is_open("--framework")) {
        return format!("a framework is `--framework {framework}`");
    }
    let is_model = matches!(Sought::of(given), Sought::Name(name) if names::model(name).is_some());
    if is_model {
        return format!("`planner {}` takes one model", of.get_name());
    }
    let positionals = of.get_arguments().filter(|argument| argument.is_positional());
    let names: Vec<String> = positionals.map(|argument| format!("{argument}")).collect();
    match names.as_slice() {
        [] if is_open("--from") => format!("files are `--from {given}`"),
        [] => format!("`planner {}` takes options alone", of.get_name()),
        _ => format!(
            "`planner {}` takes {} and options; what holds blanks is quoted",
            of.get_name(),
            names.join(" ")
        ),
    }
}

/// Tip for an unknown word in place of a subcommand.
fn meant_command(words: &[String], given: &str) -> Option<String> {
    if let Some(line) = names::command(given) {
        return Some(format!("that is `{line}`"));
    }
    let path = std::path::Path::new(given);
    let is_model = match Sought::of(given) {
        Sought::Name(name) | Sought::Repository { name, .. } => names::model(name).is_some(),
        Sought::Path => false,
    };
    let is_there = path.exists() || given.contains(['/', '.']);
    if is_model || is_there {
        return Some(format!("a command comes first: `planner search {given} --gpus N`"));
    }
    // After `help`, clap suggests no similar commands.
    let cli = Cli::command();
    let all = cli.get_subcommands().map(Command::get_name);
    let nearest = names::nearest(given, all).first().map(|name| format!("`planner help {name}`"));
    nearest.filter(|_| words.get(1).is_some_and(|word| word == "help"))
}
