//! A tool that passes its settings on to another tool, and its table.

use ir::graph::ContextParallelKind;

use super::super::{accelerate, megatron, torchtitan};
use crate::interchange::options::Vocabulary;
use crate::interchange::shell::Word;
use crate::interchange::source::Source;

/// A key with its values.
pub(super) type Setting = (String, Vec<Word>);

/// The tool that settings are passed on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Trainer,
    Megatron,
    Torchtitan,
}

/// Which of the other tool's options a tool has under their own names, unless a line of its table has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Same {
    Never,
    /// Keys, with the value `true` for a switch.
    Keys,
    /// Words of a command, in the form of the other tool's parser.
    Options,
}

/// A tool that passes its settings on.
pub(super) struct Wrapper {
    pub(super) vocabulary: Vocabulary,
    pub(super) base: Base,
    /// Path of keys that contains the settings; empty if they are at the top.
    pub(super) within: &'static [&'static str],
    /// Path of keys that contains the settings in files without `within`.
    pub(super) or_within: &'static [&'static str],
    /// Prefixes of keys; the rest of such a key is a key of the other tool.
    pub(super) prefixes: &'static [&'static str],
    /// Relation to the other tool's options: whether the tool has them by their own names.
    pub(super) same: Same,
    /// True if the gradients of each micro-batch are reduced to shards, as in code that never calls FSDP's `no_sync` or
    /// `set_requires_gradient_sync`.
    pub(super) reduces_each: bool,
    /// True if all weights are loaded in the number format of activations. Code that shards them copies them to 32
    /// bits; DDP does not.
    pub(super) loads_16_bits: bool,
    /// The tool's own context parallelism, whatever the framework has.
    pub(super) context_parallel: &'static [ContextParallelKind],
    /// True if Hydra composes its files; a command then names one of them.
    pub(super) is_hydra: bool,
    /// Adds settings that follow from several keys.
    pub(super) adds: fn(&mut Vec<Setting>, &Source<'_>),
}

impl Wrapper {
    pub(super) const fn new(program: &'static str, table: &'static str, base: Base) -> Self {
        Self {
            vocabulary: Vocabulary::with_own(program, table),
            base,
            within: &[],
            or_within: &[],
            prefixes: &[""],
            same: Same::Never,
            reduces_each: false,
            loads_16_bits: false,
            context_parallel: &[],
            is_hydra: false,
            adds: |_, _| {},
        }
    }

    /// A key under the other tool's name.
    pub(super) fn bare<'a>(&self, key: &'a str) -> &'a str {
        let bare = self.prefixes.iter().filter_map(|it| key.strip_prefix(it));
        bare.min_by_key(|it| it.len()).unwrap_or(key)
    }
}

impl Base {
    /// Options of the tool.
    pub(super) fn vocabulary(self) -> &'static Vocabulary {
        match self {
            Self::Trainer => &accelerate::TRAINER.vocabulary,
            Self::Megatron => &megatron::TABLE.vocabulary,
            Self::Torchtitan => &torchtitan::TABLE.vocabulary,
        }
    }
}

/// The other tool's option of the same name.
pub(super) fn base_option(base: Base, key: &str) -> Option<String> {
    let plain = match base {
        Base::Trainer => key.to_owned(),
        Base::Megatron => format!("--{}", key.replace('_', "-")),
        Base::Torchtitan => format!("--{key}"),
    };
    base.vocabulary().arity(&plain).map(|_| plain)
}

pub(super) fn value<'a>(all: &'a [Setting], key: &str) -> Option<&'a str> {
    let (_, words) = all.iter().find(|it| it.0 == key)?;
    words.first().map(|it| it.text.as_str())
}

/// True if a switch is on.
pub(super) fn is_on(all: &[Setting], key: &str) -> bool {
    let is_true =
        |(_, words): &Setting| words.first().is_none_or(|it| it.text.eq_ignore_ascii_case("true"));
    all.iter().find(|it| it.0 == key).is_some_and(is_true)
}

pub(super) fn number(all: &[Setting], key: &str) -> Option<u64> {
    value(all, key)?.parse().ok()
}

pub(super) fn add(all: &mut Vec<Setting>, key: &str, value: &dyn ToString) {
    all.push((key.to_owned(), vec![Word::known(&value.to_string())]));
}
