//! The clusters that ship: data-sheet numbers, each with its source.

use ir::cluster::Cluster;

use crate::{collectives, kernels};

/// A cluster that names rates which were not fitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` `{name}` is not among the rates that were fitted: {known}\nhint: leave it out, and {instead}", known = .known.join(", "))]
pub struct UnknownRates {
    /// The field that names them.
    pub field: String,
    /// The name, as it can be shown.
    pub name: String,
    /// The names that there are.
    pub known: Vec<String>,
    /// What is taken where no rates are named.
    pub instead: &'static str,
}

/// Names and JSON texts, by generation.
const PRESETS: &[(&str, &str)] = &[
    ("v100-16gb", include_str!("../clusters/v100-16gb.json")),
    ("v100", include_str!("../clusters/v100.json")),
    ("a100-40gb", include_str!("../clusters/a100-40gb.json")),
    ("a100", include_str!("../clusters/a100.json")),
    ("a100-pcie", include_str!("../clusters/a100-pcie.json")),
    ("a800", include_str!("../clusters/a800.json")),
    ("h100", include_str!("../clusters/h100.json")),
    ("h100-96gb", include_str!("../clusters/h100-96gb.json")),
    ("h100-pcie", include_str!("../clusters/h100-pcie.json")),
    ("h800", include_str!("../clusters/h800.json")),
    ("h200", include_str!("../clusters/h200.json")),
    ("gh200", include_str!("../clusters/gh200.json")),
    ("b200", include_str!("../clusters/b200.json")),
    ("b300", include_str!("../clusters/b300.json")),
    ("gb200-nvl72", include_str!("../clusters/gb200-nvl72.json")),
    ("gb300-nvl72", include_str!("../clusters/gb300-nvl72.json")),
    ("mi250x", include_str!("../clusters/mi250x.json")),
    ("mi300x", include_str!("../clusters/mi300x.json")),
    ("mi325x", include_str!("../clusters/mi325x.json")),
    ("mi355x", include_str!("../clusters/mi355x.json")),
    ("l4", include_str!("../clusters/l4.json")),
    ("l40s", include_str!("../clusters/l40s.json")),
    ("rtx-4090", include_str!("../clusters/rtx-4090.json")),
    ("tpu-v4", include_str!("../clusters/tpu-v4.json")),
    ("tpu-v5e", include_str!("../clusters/tpu-v5e.json")),
    ("tpu-v5p", include_str!("../clusters/tpu-v5p.json")),
    ("tpu-v6e", include_str!("../clusters/tpu-v6e.json")),
    ("trainium2", include_str!("../clusters/trainium2.json")),
    ("gaudi2", include_str!("../clusters/gaudi2.json")),
    ("gaudi3", include_str!("../clusters/gaudi3.json")),
];

/// Whether all rates that a cluster names were fitted.
///
/// # Errors
///
/// The first name that is not known, with those that are.
pub fn check_rates(cluster: &Cluster) -> Result<(), UnknownRates> {
    let check = |field: String, name: &Option<String>, known: Vec<String>, instead| match name {
        Some(name) if !known.contains(name) => {
            // The beginning of it, without what would move a terminal's cursor.
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
    Ok(())
}

/// The cluster with the rates that were measured on its GPU and its links, where it names none: those of a preset whose GPU
/// has the same name and peaks, and of its levels those with the same ranks and bandwidth.
#[must_use]
pub fn with_known_rates(mut cluster: Cluster) -> Cluster {
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

/// The presets' names, older generations first.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The preset called `name`.
pub fn preset(name: &str) -> Option<Cluster> {
    let (_, text) = PRESETS.iter().find(|(known, _)| *known == name)?;
    Some(Cluster::from_json(text).expect("presets are valid; a test reads each"))
}
