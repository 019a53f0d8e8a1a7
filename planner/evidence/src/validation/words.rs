//! Facts derived from the texts of a published row.
//!
//! `published.json` has a list of rules. Each has a condition on columns (`of`), and the facts that hold if the
//! condition is met (`is`). Rules apply in order, and a fact that is stated once does not change. A column is given by
//! its name, or by its path within `extra`; `a|b` matches if any of the columns does, and `a!` negates. A pattern
//! matches a part of a column's text. A pattern without capital letters is compared without regard to case, spaces and
//! signs; any other pattern letter by letter. `^` anchors the pattern to the start of the text, `=` to the whole text;
//! the empty pattern matches any non-empty text. A row's own facts (`extra.facts`) take precedence over all rules.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ir::cluster::Precision;
use ir::graph::{RecomputeModule, Switches};
use ir::schedule::ScheduleKind;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::columns::Columns;
use super::run::{MemoryKind, MemoryOf, Unsupported};

/// Contents of `published.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Words {
    /// Columns that define the problem: rows in which all of these are equal differ only in their layout.
    pub problem: Vec<String>,
    /// Columns that define the layout.
    pub layout: Vec<String>,
    rules: Vec<Rule>,
}

pub(super) static WORDS: LazyLock<Words> = LazyLock::new(|| {
    serde_json::from_str(include_str!("published.json")).expect("what ships is valid; a test")
});

/// Facts of a run that its numeric columns do not contain.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Facts {
    /// Preset of the framework.
    pub framework: String,
    /// Precision of linear layers.
    pub precision: Option<Precision>,
    /// True if linear layers run in fewer than 16 bits.
    pub few_bits: bool,
    /// Schedule of the pipeline; 1F1B also stands for interleaved 1F1B.
    pub schedule: Option<ScheduleKind>,
    /// True if the run is a single layer.
    pub is_layer: bool,
    /// True if attention stores its scores.
    pub stores_scores: bool,
    /// True if positions are added to the scores (`ALiBi`).
    pub alibi: bool,
    /// True if attention has sinks.
    pub attention_sinks: bool,
    /// True if attention is latent.
    pub latent_attention: bool,
    /// True if modules for multi-token prediction are trained.
    pub multi_token_prediction: bool,
    /// Number of modules for multi-token prediction.
    pub prediction_modules: u64,
    /// Recompute in the words of the column, if what the source states is not what ran.
    pub recompute: Option<String>,
    /// Modules that selective recompute recomputes.
    pub recomputed: Option<Vec<RecomputeModule>>,
    /// Layers that have adapters, if the model has adapters; `None` for all linear layers.
    pub adapted: Option<Vec<String>>,
    /// True if gradients are accumulated in fp32.
    pub fp32_gradients: bool,
    /// True if moments are stored in bf16.
    pub bf16_moments: bool,
    /// True if there are no master weights in fp32.
    pub no_master_weights: bool,
    /// Dispatcher, expert overlap and CUDA graphs.
    pub switches: Switches,
    /// True if stages are partitioned to minimise the time of the slowest.
    pub balances_stages: bool,
    /// True if the vocabulary is sharded over pipeline ranks.
    pub shares_vocabulary: bool,
    /// True if GPUs of a node are connected by switches.
    pub has_switches: bool,
    /// Part of the memory that was measured.
    pub memory_kind: MemoryKind,
    /// Pipeline rank whose memory was measured.
    pub memory_of: MemoryOf,
    /// True if a GB of memory is 10^9 bytes; otherwise it is 2^30, as in PyTorch's and nvidia-smi's usage.
    pub decimal_gigabytes: bool,
    /// Fields of the model's configuration besides its sizes.
    pub model: Map<String, Value>,
    /// Habits that differ from the framework's file.
    pub habits: Value,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    of: BTreeMap<String, Condition>,
    #[serde(default)]
    is: Map<String, Value>,
    #[serde(rename = "why", default)]
    _why: String,
}

/// Condition on the text of a column.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Condition {
    /// The text is this number.
    Number(f64),
    /// The text matches this pattern.
    Pattern(String),
    /// The text matches one of these patterns.
    AnyOf(Vec<String>),
    /// Among these words, the first of the list is the one that occurs first in the text.
    First { first: Vec<String> },
    /// The text is a number of at most this value.
    AtMost { at_most: f64 },
    /// The text is equal to this one or follows it in alphabetical order.
    From { from: String },
}

impl Condition {
    fn holds(&self, text: &str) -> bool {
        let number = || text.parse::<f64>().ok();
        match self {
            Self::Number(expected) => number() == Some(*expected),
            Self::Pattern(pattern) => has(text, pattern),
            Self::AnyOf(patterns) => patterns.iter().any(|pattern| has(text, pattern)),
            Self::First { first } => {
                let places = first.iter().filter_map(|word| Some((text.find(word)?, word)));
                places.min().is_some_and(|(_, word)| *word == first[0])
            }
            Self::AtMost { at_most } => number().is_some_and(|number| number <= *at_most),
            Self::From { from } => text >= from.as_str(),
        }
    }
}

/// Returns whether a text matches a pattern.
fn has(text: &str, pattern: &str) -> bool {
    let (anchor, word) = match pattern.strip_prefix(['^', '=']) {
        Some(word) => (pattern.chars().next(), word),
        None => (None, pattern),
    };
    if word.is_empty() {
        return !text.is_empty();
    }
    let (text, word) = if word.chars().any(char::is_uppercase) {
        (text.to_owned(), word.to_owned())
    } else {
        (folded(text), folded(word))
    };
    match anchor {
        Some('^') => text.starts_with(&word),
        Some(_) => text == word,
        None => text.contains(&word),
    }
}

/// A text in lower case, without spaces and signs.
pub(super) fn folded(text: &str) -> String {
    let kept = text.chars().filter(|it| it.is_alphanumeric() || *it == '.');
    kept.flat_map(char::to_lowercase).collect()
}

impl Rule {
    fn is_of(&self, row: &Columns) -> bool {
        self.of.iter().all(|(columns, condition)| {
            let (columns, expected) = match columns.strip_suffix('!') {
                Some(columns) => (columns, false),
                None => (columns.as_str(), true),
            };
            let holds = |column: &str| condition.holds(&row.as_text(column));
            columns.split('|').any(holds) == expected
        })
    }
}

impl Facts {
    /// The facts of a row.
    ///
    /// # Errors
    ///
    /// The row's own facts do not have this form.
    pub(super) fn of(row: &Columns) -> Result<Self, Unsupported> {
        let mut facts = row.value("extra.facts").cloned().unwrap_or_else(|| Map::new().into());
        for rule in WORDS.rules.iter().filter(|rule| rule.is_of(row)) {
            fill(&mut facts, &rule.is);
        }
        Self::deserialize(facts)
            .map_err(|error| Unsupported::new(format!("`extra.facts`: {error}")))
    }
}

/// Adds fields of `others` that are missing, recursively for objects.
fn fill(facts: &mut Value, others: &Map<String, Value>) {
    let Some(fields) = facts.as_object_mut() else { return };
    for (name, value) in others {
        match (fields.get_mut(name), value) {
            (None, _) => drop(fields.insert(name.clone(), value.clone())),
            (Some(own), Value::Object(inner)) => fill(own, inner),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use cost_models::frameworks;

    use super::*;
    use crate::validation::habits::with_habits;

    #[test]
    fn rules_that_ship_state_facts_of_frameworks_that_ship() {
        for Rule { is, .. } in &WORDS.rules {
            let facts = Facts::deserialize(Value::Object(is.clone())).expect("they are facts");
            let name = if is.contains_key("framework") { &facts.framework } else { "unknown" };
            let framework = frameworks::preset(name).expect(name);
            with_habits(&framework, &facts.habits).expect("they are habits");
        }
    }

    #[test]
    fn patterns_in_small_letters_match_without_signs() {
        assert!(has("FlashAttention-2 (Paddle)", "flash attention 2"));
        assert!(has("unfused softmax kernel (no FlashAttention)", "no FlashAttention"));
        assert!(!has("no flashattention", "no FlashAttention"));
        assert!(has("none", "=none") && !has("none for DP", "=none"));
        assert!(has("x", "") && !has("", ""));
    }
}
