//! Errors of the command line, with tips about what was likely meant.

use std::path::Path;
use std::sync::LazyLock;

use clap::Command;
use clap::error::{ContextKind, ErrorKind};
use command_line::usage::{example, given, has, named};
use ir::text::folded;
use serde::Deserialize;

/// Contents of `aliases.json`: words of other programs, each normalized by [`folded`], with tips about words here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Aliases {
    options: Vec<Alias>,
    values: Vec<Alias>,
    commands: Vec<Alias>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Alias {
    /// The option whose value the word is.
    #[serde(default)]
    of: String,
    names: Vec<String>,
    tip: String,
}

static ALIASES: LazyLock<Aliases> = LazyLock::new(|| {
    serde_json::from_str(include_str!("aliases.json")).expect("what ships is valid; a test")
});

/// A tip about what was likely meant, if there is one.
pub(super) fn tip(error: &clap::Error, program: &Command, words: &[String]) -> Option<String> {
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
            found(ALIASES.values.iter().filter(|row| option.starts_with(&row.of)), &chosen)
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
        // The alias comes first: the ranks of other programs are the plan's, not those of `collectives`.
        (Some(of), Some(other)) => {
            let (own, has_it) = (of.get_name(), other.get_name());
            let told =
                || format!("`{flag}` is an option of `executor {has_it}`, not of `executor {own}`");
            found(&ALIASES.options, flag).filter(|_| own == "run").or_else(|| Some(told()))
        }
        _ => found(&ALIASES.options, flag),
    }
}

fn is_json(given: &str) -> bool {
    Path::new(given).extension().is_some_and(|it| it.eq_ignore_ascii_case("json"))
}

fn command(given: &str) -> Option<String> {
    if is_json(given) {
        return Some(format!("a command comes first: `executor run {given}`"));
    }
    found(&ALIASES.commands, given)
}

fn found<'a>(rows: impl IntoIterator<Item = &'a Alias>, given: &str) -> Option<String> {
    let folded = folded(given);
    let mut rows = rows.into_iter();
    rows.find(|row| row.names.contains(&folded)).map(|row| row.tip.clone())
}
