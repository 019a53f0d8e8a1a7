//! Errors of options.

use std::fmt;

use ir::text::typeset;

/// Error of options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// An option that the program does not know.
    #[error(
        "{program} has no `{name}`{}{}", typeset_note(name),
        nearest.as_ref().map_or(String::new(), |it| format!("\nhint: `{it}`"))
    )]
    Unknown {
        /// Name of the option.
        name: String,
        /// Name of the program.
        program: &'static str,
        /// Known option of the most similar spelling, if one is similar enough.
        nearest: Option<String>,
    },
    /// An option that is given twice.
    #[error("`{name}` is given twice: {first}, then {second}\nhint: leave out one")]
    Twice {
        /// Name of the option.
        name: String,
        /// First value.
        first: String,
        /// Second value.
        second: String,
    },
    /// An option with no value or with too many.
    #[error("`{name}` takes {takes}, but has {has}")]
    Values {
        /// Name of the option.
        name: String,
        /// Number of values that it takes, in words.
        takes: String,
        /// Number of values given.
        has: usize,
    },
    /// A word that belongs to no option.
    #[error(
        "`{word}` stands where an option is expected{}{}{}",
        after.as_ref().map_or(String::new(), |it| format!(", after `{it}`")), typeset_note(word),
        typeset(word).map_or_else(String::new, |it| format!("\nhint: `{}`", it.plain))
    )]
    Stray {
        /// The word.
        word: String,
        /// The option before it.
        after: Option<String>,
    },
    /// A value that depends on unknown variables.
    #[error(
        "{of} depends on {}, which the script does not set, or in a branch alone, or by a command\nhint: {}{}",
        ticked(unknown),
        settable(unknown, others),
        may_be_empty(of, unknown)
    )]
    Unresolved {
        /// Part that is unknown.
        of: UnknownPart,
        /// Unknown variables.
        unknown: Vec<String>,
        /// Variables whose values will be asked for once these are known.
        others: Vec<String>,
    },
    /// A key that has nested keys instead of a value, or a value instead of nested keys.
    #[error(
        "{program} has {takes}, but `{name}` is {has}\nhint: leave `{name}` out, or give {takes}"
    )]
    Kind {
        /// Name of the key.
        name: String,
        /// Name of the program.
        program: &'static str,
        /// Kind of the content given.
        has: &'static str,
        /// Content that the program expects.
        takes: String,
    },
    /// A value `auto`, which the program that reads the file fills in.
    #[error(
        "`{name}` is `auto`, which is filled in by what reads the file\nhint: `--micro-batch-size 1`, with which formats \
         that are `auto` are bf16, or the script whose arguments have it, or its value"
    )]
    Auto {
        /// Name of the key.
        name: String,
    },
    /// A value that the option does not accept.
    #[error("`{}`: {works}", with_value(name, value))]
    Value {
        /// Name of the option.
        name: String,
        /// The value.
        value: String,
        /// Values that it accepts.
        works: String,
    },
    /// Two options that contradict each other.
    #[error("{one} and {other} contradict each other: {why}")]
    Contradiction {
        /// First option.
        one: String,
        /// Second option.
        other: String,
        /// Reason for the contradiction.
        why: String,
    },
    /// A required option that is not given.
    #[error("`{name}` is missing\nhint: {works}")]
    Missing {
        /// Name of the option.
        name: String,
        /// Hint: a value that works, or where to set it.
        works: String,
    },
}

/// Part of a command whose value is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownPart {
    /// The value of this option.
    Value(String),
    /// A word after this option, which has all its values already. The word may be another option, or empty.
    After(String),
    /// The first word.
    First,
}

impl fmt::Display for UnknownPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(option) => write!(f, "`{option}`"),
            Self::After(option) => write!(f, "what follows `{option}`"),
            Self::First => f.write_str("the first option"),
        }
    }
}

impl OptionError {
    pub(super) fn value(
        name: impl Into<String>,
        value: impl Into<String>,
        works: impl Into<String>,
    ) -> Self {
        Self::Value { name: name.into(), value: value.into(), works: works.into() }
    }

    pub(super) fn unresolved(of: UnknownPart, unknown: Vec<String>) -> Self {
        Self::Unresolved { of, unknown, others: Vec::new() }
    }

    pub(super) fn missing(name: impl Into<String>, works: impl Into<String>) -> Self {
        Self::Missing { name: name.into(), works: works.into() }
    }
}

/// Hint on how to set the unknown values, and on those that will be asked for next.
fn settable(unknown: &[String], others: &[String]) -> String {
    match unknown.first() {
        // A command substitution, which is not executed.
        Some(command) if command.starts_with(['$', '`']) => {
            format!("write its value instead of `{}`", command.replace('`', ""))
        }
        Some(place) if place.parse::<usize>().is_ok() => {
            format!("`--set {place}=VALUE` for argument {place} of the script")
        }
        name => {
            let name = name.map_or("NAME", String::as_str);
            let names = std::iter::once(name).chain(others.iter().map(String::as_str));
            let set: Vec<String> = names.map(|name| format!("--set {name}=VALUE")).collect();
            format!("`{}`", set.join(" "))
        }
    }
}

/// Hint for a word that is not a value of an option and may be empty.
fn may_be_empty(of: &UnknownPart, unknown: &[String]) -> String {
    match (of, unknown) {
        (UnknownPart::After(_) | UnknownPart::First, [name]) if !name.starts_with(['$', '`']) => {
            format!(", or `--set {name}=` if it is empty")
        }
        _ => String::new(),
    }
}

fn ticked(names: &[String]) -> String {
    let one = |name: &String| match name.parse::<usize>() {
        Ok(_) => format!("`${name}`"),
        Err(_) => format!("`{name}`"),
    };
    names.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// An option with its value, if it has one; a switch has none.
fn with_value(name: &str, value: &str) -> String {
    format!("{name} {value}").trim_end().to_owned()
}

fn typeset_note(word: &str) -> String {
    typeset(word).map_or_else(String::new, |it| format!(": {}", it.what))
}
