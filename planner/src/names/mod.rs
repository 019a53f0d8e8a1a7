//! Lookup of names that users give, in any spelling: of models, clusters, frameworks, schedules and options. If no name
//! matches, the nearest known names are found. Synonyms from other tools are in `aliases.json`.

mod models;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cost_models::{clusters, frameworks};
use ir::framework::IDEAL;
use ir::schedule::ScheduleKind;
pub use ir::text::{folded, nearest};
use serde::Deserialize;

pub use models::{Sought, model};

/// Synonyms, by the name that this program uses.
type Others = BTreeMap<&'static str, Vec<&'static str>>;

/// Contents of `aliases.json`: synonyms of known names, each normalized by [`folded`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Aliases {
    /// Words that vendors and clouds add to a GPU's name. Memory sizes are not listed, since some GPUs come with
    /// several.
    cluster_words: Vec<&'static str>,
    /// Prefixes that vendors and clouds write without a blank before a GPU's name: `dgxh100`.
    cluster_prefixes: Vec<&'static str>,
    /// Words in model names that say what the weights were tuned on; they do not change the network.
    model_words: Vec<&'static str>,
    /// GPUs without a preset, by the preset whose GPU is most similar.
    related_clusters: Others,
    /// Synonyms of frameworks, including short names and tools that train through a known framework.
    frameworks: Others,
    /// Synonyms of option values: in papers, in PyTorch and JAX, in launch scripts.
    values: Others,
    /// Options by their names in other tools. Rows with a tip come first. They are for names that include a value or
    /// have another meaning here; the tip is what to type.
    options: Vec<Meant>,
    /// Options of other tools without a counterpart here. A row applies to commands that have the option `of`.
    unplanned: Vec<Meant>,
    /// Values that an argument does not accept, each with a tip.
    value_tips: Vec<Meant>,
    /// Words that users type in place of a subcommand, by the command line that they mean.
    commands: Others,
}

/// A row of `aliases.json`: names of other tools for an option or argument, with an optional tip.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    /// The option or argument of this program.
    of: &'static str,
    names: Vec<&'static str>,
    /// Text of the hint: what to type, or an explanation; `None` if the option `of` itself is the counterpart.
    tip: Option<&'static str>,
}

static ALIASES: LazyLock<Aliases> = LazyLock::new(|| {
    serde_json::from_str(include_str!("aliases.json")).expect("what ships is valid; a test")
});

/// Returns the name in `known` whose normalized spelling, or one of whose synonyms in `others`, is `given`. `given`
/// must be normalized.
fn called(
    given: &str,
    known: impl IntoIterator<Item = &'static str>,
    others: &'static Others,
) -> Option<&'static str> {
    let own = known.into_iter().find(|name| folded(name) == given);
    own.or_else(|| key_of(given, others))
}

fn key_of(given: &str, others: &'static Others) -> Option<&'static str> {
    others.iter().find(|(_, also)| also.contains(&given)).map(|(name, _)| *name)
}

/// Normalizes a name like [`folded`] and drops the given words, such as a vendor's prefix.
fn folded_without(name: &str, words: &[&str]) -> String {
    let small = name.to_lowercase();
    let parts = small.split(|c: char| !c.is_alphanumeric());
    parts.filter(|part| !words.contains(part)).collect()
}

/// Returns the cluster preset called `given`, in any spelling and with vendors' additions: `DGX H100` and `NVIDIA H100
/// SXM5 80GB` are `h100`.
pub fn cluster(given: &str) -> Option<&'static str> {
    let name = folded_without(given, &ALIASES.cluster_words);
    let bare = ALIASES.cluster_prefixes.iter().find_map(|word| name.strip_prefix(word));
    let bare = bare.unwrap_or(&name);
    let own = clusters::names().find(|known| folded(known) == bare);
    own.or_else(|| clusters::also_called(bare))
}

/// Returns the preset whose GPU is most similar to a GPU without a preset.
pub fn related_cluster(given: &str) -> Option<&'static str> {
    let given = folded(given);
    let is_like = |others: &Vec<&str>| others.iter().any(|other| given.ends_with(other));
    let mut rows = ALIASES.related_clusters.iter();
    rows.find(|(_, others)| is_like(others)).map(|(name, _)| *name)
}

/// Returns the name of the framework called `given`, in any spelling.
pub fn framework(given: &str) -> Option<&'static str> {
    called(&folded(given), frameworks::names().chain([IDEAL]), &ALIASES.frameworks)
}

/// Returns the schedule called `given`, in any spelling.
pub fn schedule(given: &str) -> Option<ScheduleKind> {
    ScheduleKind::ALL.into_iter().find(|kind| is_called(kind.name(), &folded(given)))
}

/// Returns whether `given`, which must be normalized, is the name or a synonym of an option's value.
pub fn is_called(value: &str, given: &str) -> bool {
    folded(value) == given || ALIASES.values.get(value).is_some_and(|also| also.contains(&given))
}

/// Returns the tip for a value that an argument does not accept because another setting decides it.
pub fn value_tip(argument: &str, given: &str) -> Option<&'static str> {
    let given = folded(given);
    meant(&ALIASES.value_tips, &given, |of| argument.starts_with(of))?.tip
}

/// Returns the command line that a word in place of a subcommand means.
pub fn command(word: &str) -> Option<&'static str> {
    key_of(&folded(word), &ALIASES.commands)
}

/// Returns the first row that lists the name `given` and whose option or argument satisfies `has`.
fn meant(
    rows: &'static [Meant],
    given: &str,
    has: impl Fn(&str) -> bool,
) -> Option<&'static Meant> {
    rows.iter().find(|row| row.names.contains(&given) && has(row.of))
}

/// Normalizes an option for the lookup: `--parallelism.tensor_parallel_degree` is reduced to its last part, and a short
/// option of Slurm is replaced by its long name.
fn own(flag: &str) -> String {
    match flag {
        "-N" => "nodes".to_owned(),
        _ => folded(flag.rsplit('.').next().unwrap_or(flag)),
    }
}

/// Returns the tip for an option without a counterpart here. `has` accepts the options of the command.
pub fn unplanned(flag: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    meant(&ALIASES.unplanned, &own(flag), has)?.tip
}

/// Returns the text to type instead of an unknown option. `has` accepts the options of the command.
pub fn instead(flag: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let Meant { of, tip, .. } = meant(&ALIASES.options, &own(flag), has)?;
    Some(tip.map_or_else(|| format!("`{of}`"), str::to_owned))
}

/// Returns this program's first option that other tools call `flag`, among the options that `has` accepts.
pub fn flag(flag: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let options = ALIASES.options.iter().filter(|row| row.tip.is_none());
    let given = own(flag);
    options.filter(|row| row.names.contains(&given.as_str())).map(|row| row.of).find(|of| has(of))
}

/// Returns a hint with the names nearest to `given`; `all` is the text on how to list all names.
pub fn or_nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>, all: &str) -> String {
    let quoted: Vec<String> =
        nearest(given, names).into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => all.to_owned(),
        [one] => format!("{one} is the nearest; {all}"),
        [others @ .., last] => format!("{} and {last} are the nearest; {all}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests;
