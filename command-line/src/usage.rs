//! Errors of command lines, with suggestions of what was likely meant.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};
use ir::text::nearest;

/// Parses a command line. For an invalid one, `tip` returns what was likely meant, from the error, the program and the
/// words.
///
/// # Errors
///
/// The error of an invalid command line, with the tip, or else with suggestions that differ from the given text by a
/// few letters.
pub fn parse<T: CommandFactory + FromArgMatches>(
    words: &[OsString],
    tip: impl FnOnce(&clap::Error, &Command, &[String]) -> Option<String>,
) -> Result<T, clap::Error> {
    let mut program = T::command();
    let matches = program.try_get_matches_from_mut(words);
    let parsed = matches.and_then(|mut matches| T::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| {
        let words = words.iter().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<String> = words.collect();
        let tip = tip(&error, &program, &words);
        with_tip(error, &program, &words, tip)
    })
}

/// The invalid text in an error, by the kind of its context.
pub fn given(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(given)) => Some(given.clone()),
        _ => None,
    }
}

/// The command that is named in a command line.
pub fn named<'a>(program: &'a Command, words: &[String]) -> Option<&'a Command> {
    words.iter().skip(1).find_map(|word| program.find_subcommand(word))
}

/// A tip with an example from a command's help, if the example shows all missing arguments.
pub fn example(program: &str, command: &Command, error: &clap::Error) -> Option<String> {
    let help = command.get_after_help()?.to_string();
    let own = format!("{program} {} ", command.get_name());
    let line = help.lines().map(str::trim).find(|line| line.starts_with(&own))?;
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.as_slice(),
        _ => &[],
    };
    // The example may use an option's long or short form.
    let is_shown = |missing: &String| {
        let name = missing.split(' ').next().unwrap_or_default();
        let Some(long) = name.strip_prefix("--") else { return true };
        let option = command.get_arguments().find(|argument| argument.get_long() == Some(long));
        let short = option.and_then(clap::Arg::get_short);
        line.contains(name) || short.is_some_and(|short| line.contains(&format!(" -{short} ")))
    };
    if !missing.iter().all(is_shown) {
        return None;
    }
    Some(format!("for example: {line}"))
}

/// Returns whether a command has a long option.
pub fn has(command: &Command, long: &str) -> bool {
    command.get_arguments().any(|argument| {
        let names = argument.get_long_and_visible_aliases().unwrap_or_default();
        names.iter().any(|name| long.strip_prefix("--") == Some(name))
    })
}

/// The error with `tip` if there is one, else with suggestions that differ from the given text by a few letters.
///
/// clap's own suggestions, and the usage line that it derives from them, may mean something quite different.
fn with_tip(
    mut error: clap::Error,
    program: &Command,
    words: &[String],
    tip: Option<String>,
) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        // clap's tip on passing a word with hyphens as a value applies to no command here.
        error.remove(ContextKind::Suggested);
        if let Some(of) = named(program, words) {
            error.remove(ContextKind::SuggestedArg);
            error.insert(ContextKind::Usage, ContextValue::StyledStr(of.clone().render_usage()));
            let similar = given(&error, ContextKind::InvalidArg).and_then(|it| misspelt(of, &it));
            if let Some(similar) = similar {
                error.insert(ContextKind::SuggestedArg, ContextValue::String(similar));
            }
        }
    }
    if error.kind() == ErrorKind::InvalidSubcommand {
        let names = program.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name);
        let similar = given(&error, ContextKind::InvalidSubcommand)
            .and_then(|it| nearest(&it, names).into_iter().next());
        match similar {
            Some(similar) => {
                let similar = ContextValue::Strings(vec![similar.to_owned()]);
                error.insert(ContextKind::SuggestedSubcommand, similar)
            }
            None => error.remove(ContextKind::SuggestedSubcommand),
        };
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

/// The option of a command that was likely meant.
fn misspelt(of: &Command, given: &str) -> Option<String> {
    let longs = of.get_arguments().filter(|it| !it.is_hide_set()).filter_map(clap::Arg::get_long);
    nearest(given, longs).first().map(|long| format!("--{long}"))
}
