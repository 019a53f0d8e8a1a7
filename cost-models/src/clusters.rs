//! The cluster presets: data-sheet numbers, each with its source.

use std::borrow::Cow;
use std::sync::LazyLock;

use ir::cluster::{Cluster, NetworkLevel};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{collectives, kernels};

/// Error of a cluster that names rates that were not fitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` `{name}` is not among the rates that were fitted: {known}\nhint: leave it out, and {instead}", known = .known.join(", "))]
pub struct UnknownRates {
    /// The field that names the rates.
    pub field: String,
    /// The name, escaped for display.
    pub name: String,
    /// The names of the fitted rates.
    pub known: Vec<String>,
    /// The rates that are used where none are named, in words.
    pub instead: &'static str,
}

/// Texts of the files in `clusters/`, listed by `build.rs`.
const FILES: &[&str] = &include!(concat!(env!("OUT_DIR"), "/clusters.rs"));

/// A cluster preset, with its other names.
#[derive(Deserialize)]
struct Preset {
    name: String,
    #[serde(default, rename = "preset")]
    listing: Listing,
    /// True if the file states a GPU of its own.
    #[serde(default, rename = "gpu", deserialize_with = "is_there")]
    has_gpu: bool,
    #[serde(skip)]
    text: &'static str,
}

fn is_there<'de, D: serde::Deserializer<'de>>(field: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(field).map(|_| true)
}

/// Error of a cluster whose `like` names a preset that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`like` `{name}` is no preset\nhint: {known}", known = .known.join(", "))]
pub struct UnknownBase {
    /// The name, escaped for display.
    pub name: String,
    /// Presets that a cluster can be like.
    pub known: Vec<&'static str>,
}

/// The part of a cluster's file that describes the preset.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Listing {
    /// Position in lists, older generations first.
    order: u32,
    /// Other names, in lower case without spaces and punctuation.
    names: Vec<String>,
    /// Entries that match names of its GPU: an entry is one word, or several separated by blanks, which must all be in
    /// the name. By default, the words of the cluster's name.
    gpus: Vec<String>,
}

impl Default for Listing {
    fn default() -> Self {
        Self { order: u32::MAX, names: Vec::new(), gpus: Vec::new() }
    }
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let read = |text: &&'static str| {
        let preset: Preset =
            serde_json::from_str(text).expect("presets are valid; a test reads each");
        Preset { text, ..preset }
    };
    let mut all: Vec<Preset> = FILES.iter().map(read).collect();
    all.sort_by(|a, b| (a.listing.order, &a.name).cmp(&(b.listing.order, &b.name)));
    all
});

/// Checks that all rates that a cluster names were fitted.
///
/// # Errors
///
/// The first name that is not known, with those that are.
pub fn check_rates(cluster: &Cluster) -> Result<(), UnknownRates> {
    let check = |field: String, name: &Option<String>, known: Vec<String>, instead| match name {
        Some(name) if !known.contains(name) => {
            // The first characters of the name, with a terminal's control characters escaped.
            let name = name.chars().take(40).flat_map(char::escape_debug).collect();
            Err(UnknownRates { field, name, known, instead })
        }
        _ => Ok(()),
    };
    let instead = "the nearest are scaled";
    let field = "gpu.kernel_rates".to_owned();
    check(field, &cluster.gpu.kernel_rates, kernels::fitted_rates(), instead)?;
    for (index, level) in cluster.levels.iter().enumerate() {
        let instead = "latency and bandwidth are taken";
        let field = format!("levels[{index}].collective_rates");
        check(field, &level.collective_rates, collectives::fitted_rates(), instead)?;
    }
    cluster.groups.iter().try_for_each(|group| check_rates(&group.cluster))
}

/// The cluster with measured rates of its GPU and links where it names none. They come from a preset whose GPU has the
/// same name and peaks; those of a level, only if that level of the preset has the same ranks and bandwidth. A level
/// that names rates, but has another bandwidth than the presets that have them, goes without: they would hide it.
#[must_use]
pub fn with_known_rates(mut cluster: Cluster) -> Cluster {
    for level in &mut cluster.levels {
        if level.collective_rates.is_some() && !has_measured_bandwidth(level) {
            level.collective_rates = None;
        }
    }
    for group in &mut cluster.groups {
        group.cluster = with_known_rates(group.cluster.clone());
    }
    let is_known = |it: &Cluster| {
        it.gpu.name.eq_ignore_ascii_case(&cluster.gpu.name) && it.gpu.peak == cluster.gpu.peak
    };
    let Some(known) = names().filter_map(preset).find(is_known) else { return cluster };
    let gpu = &mut cluster.gpu;
    if gpu.kernel_rates.is_none() && gpu.measured.is_none() {
        gpu.kernel_rates = known.gpu.kernel_rates;
        if gpu.sustained.is_empty() {
            gpu.sustained = known.gpu.sustained;
        }
        gpu.num_multiprocessors = gpu.num_multiprocessors.or(known.gpu.num_multiprocessors);
    }
    for (level, own) in cluster.levels.iter_mut().zip(known.levels) {
        let is_same = level.bandwidth == own.bandwidth && level.ranks == own.ranks;
        let is_bare =
            level.collective_rates.is_none() && level.start.is_none() && level.measured.is_empty();
        if is_same && is_bare {
            level.collective_rates = own.collective_rates;
        }
    }
    cluster
}

/// True if a preset has a level with these rates and this bandwidth.
fn has_measured_bandwidth(level: &NetworkLevel) -> bool {
    let is_same = |own: &NetworkLevel| {
        own.collective_rates == level.collective_rates && own.bandwidth == level.bandwidth
    };
    names().filter_map(preset).any(|known| known.levels.iter().any(is_same))
}

/// The presets' names, older generations first.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name.as_str())
}

/// The preset called `name`.
pub fn preset(name: &str) -> Option<Cluster> {
    let preset = PRESETS.iter().find(|known| known.name == name)?;
    let text = completed(preset.text).expect("presets are like presets; a test reads each");
    Some(Cluster::from_json(&text).expect("presets are valid; a test reads each"))
}

/// The text of a cluster, completed with the fields of the preset that it is `like`. The cluster's own fields patch
/// those of the preset (RFC 7386: objects are merged, `null` removes a field, and lists are replaced). A text without
/// `like` is returned as it is.
///
/// # Errors
///
/// [`UnknownBase`] where no such preset exists.
pub fn completed(text: &str) -> Result<Cow<'_, str>, UnknownBase> {
    // The reader of clusters refuses what is not JSON.
    let Ok(Value::Object(mut own)) = serde_json::from_str(text) else {
        return Ok(Cow::Borrowed(text));
    };
    let Some(like) = own.remove("like") else { return Ok(Cow::Borrowed(text)) };
    let base = PRESETS.iter().find(|preset| like.as_str() == Some(&preset.name));
    let Some(base) = base else {
        let name = like.as_str().map_or_else(|| like.to_string(), str::to_owned);
        let name = name.chars().take(40).flat_map(char::escape_debug).collect();
        return Err(UnknownBase {
            name,
            known: PRESETS.iter().map(|it| it.name.as_str()).collect(),
        });
    };
    let mut whole: Map<String, Value> = serde_json::from_str(&completed(base.text)?)
        .expect("presets are objects; a test reads each");
    whole.remove("preset");
    patch(&mut whole, own);
    Ok(Cow::Owned(Value::Object(whole).to_string()))
}

/// Merges `own` into `whole`.
fn patch(whole: &mut Map<String, Value>, own: Map<String, Value>) {
    for (name, value) in own {
        match (whole.get_mut(&name), value) {
            (_, Value::Null) => {
                whole.remove(&name);
            }
            (Some(Value::Object(whole)), Value::Object(own)) => patch(whole, own),
            (_, value) => {
                whole.insert(name, value);
            }
        }
    }
}

/// The preset with this other name, which is in lower case without spaces and punctuation.
pub fn also_called(name: &str) -> Option<&'static str> {
    let found = PRESETS.iter().find(|it| it.listing.names.iter().any(|also| also == name))?;
    Some(&found.name)
}

/// The preset with the longest words that match a GPU's name, which is in lower case without spaces and punctuation.
pub fn of_gpu(name: &str) -> Option<&'static str> {
    let length = |words: &str, sign: char| {
        let all = words.split(sign).all(|word| name.contains(word));
        all.then(|| words.split(sign).map(str::len).sum::<usize>())
    };
    // Presets of a cloud's nodes take their GPU from another preset.
    let own = PRESETS.iter().filter(|preset| preset.has_gpu);
    let matched = |Preset { name, listing, .. }: &Preset| match listing.gpus.as_slice() {
        [] => length(name, '-'),
        gpus => gpus.iter().filter_map(|words| length(words, ' ')).max(),
    };
    let found = own.filter_map(|preset| Some((matched(preset)?, preset)));
    let longest = found.max_by_key(|(length, _)| *length);
    longest.map(|(_, preset)| preset.name.as_str())
}
