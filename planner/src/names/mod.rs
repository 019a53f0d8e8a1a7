//! What people call things: names in any writing, and for a name that nothing has, those that were likely meant. What is
//! called otherwise elsewhere is in `aliases.json`.

mod models;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cost_models::{clusters, frameworks};
use ir::framework::IDEAL;
use ir::schedule::ScheduleKind;
pub use ir::text::{folded, nearest};
use serde::Deserialize;

pub use models::{Sought, model};

/// A name with what else it is called.
type Others = BTreeMap<&'static str, Vec<&'static str>>;

/// Other names of what this program knows, each written as [`folded`] writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Aliases {
    /// Words that makers and clouds put beside a GPU's name. A memory's size is none: some GPUs come with several.
    cluster_words: Vec<&'static str>,
    /// The same where no blank follows them: `dgxh100`.
    cluster_prefixes: Vec<&'static str>,
    /// Words of models' names that tell apart what weights were trained on, not the network that they are of.
    model_words: Vec<&'static str>,
    /// GPUs that are not known, by the cluster of the GPU nearest in kind.
    related_clusters: Others,
    /// Short names too, and tools that train through a framework that is known.
    frameworks: Others,
    /// Values of options: in papers, in PyTorch and JAX, in launch scripts.
    values: Others,
    /// Options by the names that other tools give them: first those that carry their value in their name, or mean something
    /// else here, with what to type.
    options: Vec<Meant>,
    /// Options of others that are about something that no option here is: of a command that has another option, a sentence.
    unplanned: Vec<Meant>,
    /// Values that an argument does not take.
    value_tips: Vec<Meant>,
    /// Words in the place of a command, by the line that is meant.
    commands: Others,
}

/// What may be meant by names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    /// The option or the argument that it is about.
    of: &'static str,
    names: Vec<&'static str>,
    /// What to type, or to know; nothing where the option itself is meant.
    tip: Option<&'static str>,
}

static ALIASES: LazyLock<Aliases> = LazyLock::new(|| {
    serde_json::from_str(include_str!("aliases.json")).expect("what ships is valid; a test")
});

/// That of `known` that is called `given`, folded, there or in `others`.
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

/// A name as [`folded`], without words that say nothing of which thing it is.
fn folded_without(name: &str, words: &[&str]) -> String {
    let small = name.to_lowercase();
    let parts = small.split(|c: char| !c.is_alphanumeric());
    parts.filter(|part| !words.contains(part)).collect()
}

/// The name of the preset that is called `given`, in any writing and with what makers put beside it:
/// `DGX H100` and `NVIDIA H100 SXM5 80GB` are `h100`.
pub fn cluster(given: &str) -> Option<&'static str> {
    let name = folded_without(given, &ALIASES.cluster_words);
    let bare = ALIASES.cluster_prefixes.iter().find_map(|word| name.strip_prefix(word));
    let bare = bare.unwrap_or(&name);
    let own = clusters::names().find(|known| folded(known) == bare);
    own.or_else(|| clusters::also_called(bare))
}

/// The preset whose GPU is nearest in kind to one that is not known.
pub fn related_cluster(given: &str) -> Option<&'static str> {
    let given = folded(given);
    let is_like = |others: &Vec<&str>| others.iter().any(|other| given.ends_with(other));
    let mut rows = ALIASES.related_clusters.iter();
    rows.find(|(_, others)| is_like(others)).map(|(name, _)| *name)
}

/// The name of the framework that is called `given`, in any writing.
pub fn framework(given: &str) -> Option<&'static str> {
    called(&folded(given), frameworks::names().chain([IDEAL]), &ALIASES.frameworks)
}

/// The schedule that is called `given`, in any writing.
pub fn schedule(given: &str) -> Option<ScheduleKind> {
    ScheduleKind::ALL.into_iter().find(|kind| is_called(kind.name(), &folded(given)))
}

/// Whether a value of an option is called `given`, folded.
pub fn is_called(value: &str, given: &str) -> bool {
    folded(value) == given || ALIASES.values.get(value).is_some_and(|also| also.contains(&given))
}

/// What to know of a value that an argument does not take, where others choose it.
pub fn value_tip(argument: &str, given: &str) -> Option<&'static str> {
    let given = folded(given);
    meant(&ALIASES.value_tips, &given, |of| argument.starts_with(of))?.tip
}

/// The line that is meant by a word in the place of a command.
pub fn command(word: &str) -> Option<&'static str> {
    key_of(&folded(word), &ALIASES.commands)
}

/// The first of `rows` that has a name, of what `has` says is there.
fn meant(
    rows: &'static [Meant],
    given: &str,
    has: impl Fn(&str) -> bool,
) -> Option<&'static Meant> {
    rows.iter().find(|row| row.names.contains(&given) && has(row.of))
}

/// An option as it is looked up: of `--parallelism.tensor_parallel_degree`, what stands last; of Slurm's letters, which
/// are capital, what they are short for.
fn own(flag: &str) -> String {
    match flag {
        "-N" => "nodes".to_owned(),
        _ => folded(flag.rsplit('.').next().unwrap_or(flag)),
    }
}

/// What there is to know of an option that nothing here corresponds to, of a command that has what `has` says.
pub fn unplanned(flag: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    meant(&ALIASES.unplanned, &own(flag), has)?.tip
}

/// What to type for an option that is not known, of a command that has what `has` says.
pub fn instead(flag: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let Meant { of, tip, .. } = meant(&ALIASES.options, &own(flag), has)?;
    Some(tip.map_or_else(|| format!("`{of}`"), str::to_owned))
}

/// The option of this program that others call `flag`, of those that `has` says are there: the first.
pub fn flag(flag: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let options = ALIASES.options.iter().filter(|row| row.tip.is_none());
    let given = own(flag);
    options.filter(|row| row.names.contains(&given.as_str())).map(|row| row.of).find(|of| has(of))
}

/// A hint of the names nearest to `given`, and of what lists `all` of them.
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
