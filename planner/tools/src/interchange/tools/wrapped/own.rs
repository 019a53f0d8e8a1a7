//! The tables read backwards: from an option of the tool that settings are passed on to, to the keys of the wrapping
//! tool.

use super::super::{accelerate, megatron, torchtitan};
use super::wrapper::{Base, Same, Setting, Wrapper, base_option};
use crate::interchange::error::ImportError;
use crate::interchange::index::IndexedRow;
use crate::interchange::options::{OptionError, UnknownPart};
use crate::interchange::table::Table;
use crate::interchange::tool::OwnKey;

/// Tables of the options that settings are translated to.
pub(super) static TRAINER: [&Table; 2] = [&accelerate::TRAINER, &accelerate::CONFIGURATION];
pub(super) static MEGATRON: [&Table; 1] = [&megatron::TABLE];
pub(super) static TORCHTITAN: [&Table; 1] = [&torchtitan::TABLE];

/// Prefix of the keys of the model that verl trains by reinforcement learning.
pub(super) const ACTOR: &str = "actor_rollout_ref.";

/// Words in a line of a table for keys that do not become an option.
pub(super) const NO_OPTION: [&str; 7] =
    ["none", "unplanned", "must", "nodes", "each", "batch", "pure"];

/// Keys that become an option, as written in a file: first the key of the option's own name, then others in the order
/// of the table. The words `nodes` and `each` stand for the ranks of a job.
pub(super) fn own_keys(wrapper: &Wrapper, option: &str) -> Vec<OwnKey> {
    let plain = |option: &str| option.trim_start_matches("--").to_owned();
    // The Trainer has keys of accelerate's configuration without their prefix.
    let shorter = option.replace("fsdp_config.fsdp_", "fsdp_config.");
    let wanted = if wrapper.base == Base::Trainer { shorter } else { option.to_owned() };
    let within = |key: &str| {
        let parents = wrapper.within.iter().map(|it| format!("{it}."));
        parents.collect::<String>() + key
    };
    let mut all = same(wrapper, &wanted);
    for it in &mut all {
        it.name = if it.is_flag { within(&it.name) } else { std::mem::take(&mut it.name) };
    }
    for row in &wrapper.vocabulary.index().rows {
        let IndexedRow {
            name: key, arity: arity @ ("any" | "none"), becomes: Some(becomes), ..
        } = *row
        else {
            continue;
        };
        if plain(becomes) != plain(&wanted) || key.ends_with('*') {
            continue;
        }
        let forms = row.words.iter().filter_map(|it| it.split_once('='));
        let forms: Vec<(&'static str, &'static str)> = forms.collect();
        let left_out = forms.iter().find(|it| it.0 == "-").map(|it| it.1);
        let words = forms.into_iter().filter(|it| it.0 != "-").collect();
        // Megatron's parser accepts only dashes.
        let is_option = wrapper.same == Same::Options;
        let name = if is_option { key.replace('_', "-") } else { within(key) };
        let is_switch = arity == "none";
        all.push(OwnKey { name, words, left_out, is_flag: true, is_switch });
    }
    all
}

/// Keys of an option's own name.
fn same(wrapper: &Wrapper, option: &str) -> Vec<OwnKey> {
    let plain = option.trim_start_matches("--");
    // Keys that are options themselves keep their dashes.
    let has_dashes = wrapper.base != Base::Megatron || wrapper.prefixes.contains(&"--");
    let name = if has_dashes { plain.to_owned() } else { plain.replace('-', "_") };
    if base_option(wrapper.base, &name).is_none() {
        return Vec::new();
    }
    let keys = wrapper.prefixes.iter().map(|it| format!("{it}{name}"));
    let keys = keys.filter(|it| wrapper.vocabulary.index().of_key(it).is_none());
    match wrapper.same {
        Same::Never => Vec::new(),
        Same::Keys => {
            keys.map(|name| OwnKey { name, is_flag: true, ..OwnKey::default() }).collect()
        }
        Same::Options => {
            keys.map(|_| OwnKey { name: option.to_owned(), ..OwnKey::default() }).collect()
        }
    }
}

/// Option that a key becomes; the key itself if it becomes none.
pub(super) fn option_of(wrapper: &Wrapper, key: &str) -> String {
    let plain = key.trim_start_matches("--");
    let within = wrapper.within.join(".") + ".";
    let plain = plain.strip_prefix(&within).unwrap_or(plain);
    let becomes = wrapper.vocabulary.index().of_key(plain).and_then(|row| row.becomes);
    match becomes.filter(|it| !NO_OPTION.contains(it)) {
        Some(option) => option.to_owned(),
        None if becomes.is_some() => key.to_owned(),
        None => base_option(wrapper.base, wrapper.bare(plain)).unwrap_or_else(|| key.to_owned()),
    }
}

/// Rewrites an error about options as one about the keys that became them.
pub(super) fn in_own_words(
    error: ImportError,
    wrapper: &Wrapper,
    settings: &[Setting],
) -> ImportError {
    let plain = |option: &str| option.trim_start_matches("--").to_owned();
    let has_actor = settings.iter().any(|it| it.0.starts_with(ACTOR));
    let name = |option: &str| {
        let is_it = |(key, _): &&Setting| plain(&option_of(wrapper, key)) == plain(option);
        let given = settings.iter().rev().find(is_it).map(|it| it.0.clone());
        let takes = |key: &OwnKey| has_actor || !key.name.starts_with(ACTOR);
        let first = || own_keys(wrapper, option).into_iter().find(takes).map(|it| it.name);
        given.or_else(first).unwrap_or_else(|| option.to_owned())
    };
    let text = |text: &str| {
        let parts = text.split('`').enumerate().map(|(index, part)| {
            // Every second part between backquotes is a name.
            let at = part.find(' ').unwrap_or(part.len());
            let (option, value) = part.split_at(if index % 2 == 1 { at } else { 0 });
            if option.is_empty() { part.to_owned() } else { name(option) + value }
        });
        parts.collect::<Vec<_>>().join("`")
    };
    match error {
        ImportError::Option(error) => ImportError::Option(match error {
            OptionError::Twice { name: of, first, second } => {
                OptionError::Twice { name: name(&of), first, second }
            }
            OptionError::Values { name: of, takes, has } => {
                OptionError::Values { name: name(&of), takes, has }
            }
            OptionError::Value { name: of, value, works } => {
                OptionError::Value { name: name(&of), value, works: text(&works) }
            }
            OptionError::Missing { name: of, works } => {
                OptionError::Missing { name: name(&of), works: text(&works) }
            }
            OptionError::Contradiction { one, other, why } => {
                OptionError::Contradiction { one: text(&one), other: text(&other), why: text(&why) }
            }
            OptionError::Unresolved { of: UnknownPart::Value(of), unknown, others } => {
                OptionError::Unresolved { of: UnknownPart::Value(name(&of)), unknown, others }
            }
            other => other,
        }),
        ImportError::Unknown { what, works } => {
            ImportError::Unknown { what: text(&what), works: text(&works) }
        }
        ImportError::Divides { of, instead, what, works } => {
            ImportError::Divides { of, instead, what: text(&what), works: text(&works) }
        }
        other => other,
    }
}
