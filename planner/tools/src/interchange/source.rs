//! Form of the user's settings, with the context for reading them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::error::{Divided, ImportError};
use super::file::{basename, has_ending};
use super::imported::{Imported, Stated};
use super::shell::Word;
use super::target::Target;
use super::tree::{Notation, Tree};

/// A program with its arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct LaunchedProgram {
    /// The launcher and its options.
    pub(super) before: Vec<Word>,
    /// The program and the words after it.
    pub(super) words: Vec<Word>,
    /// Number of ranks that are started, if the script says.
    pub(super) num_gpus: Option<u32>,
    /// Number of ranks on each node, if the launcher says.
    pub(super) ranks_per_node: Option<u32>,
}

/// Form of settings.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// Program with its options.
    Program(LaunchedProgram),
    /// File of keys.
    Tree(Tree),
    /// Python file.
    Python(String),
}

/// Settings of a tool, with the context for reading them.
#[derive(Clone, Debug)]
pub(super) struct Source<'a> {
    /// Tool of the settings.
    pub(super) target: Target,
    /// Form of the settings.
    pub(super) form: Form,
    /// Files that the settings name, by their names.
    pub(super) files: &'a BTreeMap<String, String>,
    /// Values that the user states in addition to the settings.
    pub(super) stated: Stated,
    /// Layers of the user's model, if it is a transformer.
    pub(super) num_layers: Option<u32>,
    /// True if the user's model has experts.
    pub(super) has_experts: bool,
    /// True if all layers of the user's model have experts.
    pub(super) is_all_mixture: bool,
    /// True if the user's model is a transformer without dropout.
    pub(super) has_no_dropout: bool,
}

impl Source<'_> {
    /// Settings of a tool with all options at their defaults.
    pub(super) fn defaults(&self, tool: Target) -> Imported {
        let num_gpus = self.launched().ok().and_then(|it| it.num_gpus);
        Imported::unset(tool, num_gpus, self.stated)
    }

    /// Text of a file that the settings name; an error if it is missing.
    pub(super) fn file(&self, name: &str) -> Result<&str, ImportError> {
        text_of(self.files, name)
    }

    /// Keys of a file that the settings name.
    pub(super) fn tree(&self, name: &str) -> Result<Tree, ImportError> {
        tree_of(self.files, name)
    }

    /// Keys of the settings: of the file itself, or of the file that an option of the script names. `usual` is the
    /// file's name in exports, `program` the program that reads it.
    pub(super) fn configuration(
        &self,
        option: &str,
        usual: &str,
        program: &str,
    ) -> Result<Cow<'_, Tree>, ImportError> {
        if let Form::Tree(tree) = &self.form {
            return Ok(Cow::Borrowed(tree));
        }
        let words = &self.launched()?.words;
        let value = |(place, word): (usize, &'_ Word)| match word.text.strip_prefix(option)? {
            "" => words.get(place + 1).map(|it| it.text.clone()),
            inline => inline.strip_prefix('=').map(str::to_owned),
        };
        let name = words.iter().enumerate().find_map(value).ok_or_else(|| {
            let works = format!("`{option} {usual}`, or the configuration itself");
            ImportError::unknown(format!("nothing names {program}'s configuration"), works)
        })?;
        self.tree(&name).map(Cow::Owned)
    }

    /// Program with its words; an error if the settings are a file.
    pub(super) fn launched(&self) -> Result<&LaunchedProgram, ImportError> {
        match &self.form {
            Form::Program(started) => Ok(started),
            _ => Err(ImportError::unknown(
                format!("{} is told by options, not by such a file", self.target.tool()),
                "the script that starts it, or its arguments",
            )),
        }
    }

    /// Words after the program; an error if the settings are a file.
    pub(super) fn arguments(&self) -> Result<&[Word], ImportError> {
        Ok(self.launched()?.words.get(1..).unwrap_or_default())
    }

    /// Number of ranks, from the settings or the user.
    pub(super) fn num_gpus(&self) -> Option<u32> {
        self.launched().ok().and_then(|it| it.num_gpus).or(self.stated.num_gpus)
    }
}

/// Keys of a file that settings name; an error if it is missing. JSON in place of a name is the keys themselves, as the
/// Trainer takes it (`_VALID_DICT_FIELDS` in transformers' `training_args.py`).
pub(super) fn tree_of(files: &BTreeMap<String, String>, name: &str) -> Result<Tree, ImportError> {
    let text = if name.starts_with('{') { name } else { text_of(files, name)? };
    Tree::read(text, notation(name, text))
        .map_err(|what| ImportError::unknown(format!("`{}`: {what}", basename(name)), WHOLE))
}

fn text_of<'a>(files: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, ImportError> {
    let name = basename(name);
    if name.is_empty() {
        let what = "the name of the file with the settings depends on what the script does not set";
        return Err(ImportError::unknown(what, "`--set NAME=VALUE` for its variable or argument"));
    }
    files.get(name).map(String::as_str).ok_or_else(|| {
        let what = format!("the settings are in `{name}`, which is not beside them");
        ImportError::unknown(what, format!("put `{name}` beside the file that names it"))
    })
}

/// Hint for a file that cannot be parsed.
pub(super) const WHOLE: &str = "the whole file, as the tool reads it";

/// Notation of a file of keys, from its name or its text.
pub(super) fn notation(name: &str, text: &str) -> Notation {
    let is_json = has_ending(name, "json") || text.trim_start().starts_with('{');
    match () {
        () if is_json => Notation::Json,
        () if is_toml(text) => Notation::Toml,
        () => Notation::Yaml,
    }
}

/// Returns whether a text begins with a TOML table, with or without keys before it.
pub(crate) fn is_toml(text: &str) -> bool {
    let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
    // Shell assignments have no spaces around `=`.
    let is_set = |line: &&str| {
        line.split_once(" = ").is_some_and(|(key, _)| !key.is_empty() && key.chars().all(is_key))
    };
    let table = statements(text).find(|line| !is_set(line)).unwrap_or_default();
    let table = table.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    table.is_some_and(|it| {
        it.starts_with(|c: char| c.is_ascii_alphabetic()) && it.chars().all(is_key)
    })
}

/// Lines of a text that are neither blank nor comments.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'))
}

/// First line of a text that is neither blank nor a comment.
pub(super) fn first_line(text: &str) -> &str {
    statements(text).next().unwrap_or_default()
}

/// Value in the settings, else the user's; an error if the two differ.
pub(super) fn agreed<T: Copy + PartialEq + std::fmt::Display>(
    said: Option<T>,
    name: &str,
    stated: Option<T>,
    option: &str,
) -> Result<Option<T>, ImportError> {
    match (said, stated) {
        (Some(said), Some(stated)) if said != stated => Err(ImportError::divides(
            Divided::Stated,
            format!("the settings have `{name}` {said}, not {stated}"),
            format!("leave out `{option}`"),
        )),
        _ => Ok(said.or(stated)),
    }
}
