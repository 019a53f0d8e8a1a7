//! Reads the Python of an export for Megatron-Bridge: lines that set one value each.

use std::ops::Range;

use super::super::megatron;
use super::table::{TABLE, ValueForm, rows};
use crate::interchange::error::ImportError;
use crate::interchange::file::basename;
use crate::interchange::imported::Imported;
use crate::interchange::options::{Leaf, Vocabulary};
use crate::interchange::shell::Word;
use crate::interchange::source::{Form, Source};

/// Settings that are read. Any other setting is refused, so that none is overlooked.
static KNOWN: Vocabulary = Vocabulary::whole("Megatron-Bridge", TABLE);

/// Reads the Python, or the script that starts it.
pub(super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    let text = if let Form::Python(text) = &source.form {
        text.as_str()
    } else {
        let words = &source.launched()?.words;
        source.file(words.first().map_or("planned.py", |it| basename(&it.text)))?
    };
    // Values that a function sets are unknown, since the Python is not executed.
    if !text.contains("AutoBridge.from_hf_config(") {
        return Err(ImportError::unknown(
            "the configuration comes from a function (a recipe), which is Python and is not run",
            "a file as `planner export --to megatron-bridge` writes it, whose lines set one thing each",
        ));
    }
    let leaves = leaves(text);
    let twins: Vec<&str> = rows().filter_map(|row| row.twin).collect();
    let own: Vec<(String, Leaf)> =
        leaves.into_iter().filter(|(path, _)| !twins.contains(&path.as_str())).collect();
    KNOWN.of_leaves(&own)?;
    let mut words = Vec::new();
    for (path, leaf) in own {
        let Leaf::Values(values) = leaf else { continue };
        let value = values.first().map_or("", String::as_str);
        let is_said = |kind: ValueForm| match kind {
            ValueForm::Switch => value == "True",
            ValueForm::Unless => value == "False",
            ValueForm::None => false,
            _ => value != "None",
        };
        let row = rows().find(|row| row.path == path && is_said(row.kind));
        let Some(row) = row else { continue };
        words.push(Word::known(row.flag));
        let plain = |value: &String| match value.as_str() {
            "torch.bfloat16" => Word::known("bf16"),
            "torch.float32" => Word::known("fp32"),
            other => Word::known(other),
        };
        if !matches!(row.kind, ValueForm::Switch | ValueForm::Unless) {
            words.extend(values.iter().map(plain));
        }
    }
    megatron::read_words(source, &words)
}

/// Ranges within a line `config.a.b = value` (or `cfg.a.b = value`) of the path and the value.
pub(crate) fn setting(line: &str) -> Option<(Range<usize>, Range<usize>)> {
    let setting = line.trim_start();
    let prefix = ["config.", "cfg."].into_iter().find(|it| setting.starts_with(it))?.len();
    let (path, value) = setting[prefix..].split_once(" = ")?;
    let start = line.len() - setting.len() + prefix;
    let from = start + path.len() + " = ".len();
    let value = value.split("  #").next().unwrap_or_default().trim_end();
    Some((start..start + path.len(), from..from + value.len()))
}

/// Every setting of a text, as path and values.
fn leaves(text: &str) -> Vec<(String, Leaf)> {
    let leaf = |line: &str| {
        let (path, value) = setting(line)?;
        let value = line[value].trim_start();
        let plain = |word: &str| word.trim().trim_matches(['"', '\'']).to_owned();
        let values = match value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) {
            Some(list) => list.split(',').map(plain).collect(),
            None => vec![plain(value)],
        };
        Some((line[path].to_owned(), Leaf::Values(values)))
    };
    text.lines().filter_map(leaf).collect()
}
