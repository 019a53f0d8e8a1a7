//! Cluster files: reading, writing, and inserting measured networks.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use command_line::destination::write_output;
use executor::collectives::{FittedLevel, TimedCollective, fit_level, groups};
use executor_communicators::Group;
use ir::cluster::{Architecture, Cluster, Gpu, Precision};
use ir::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};
use serde::de::IgnoredAny;

use super::args::CommunicatorKind;
use super::files;

/// Reads a cluster file.
pub(super) fn read(path: &Path) -> anyhow::Result<Cluster> {
    let text = files::read_text(path)?;
    Cluster::from_json(&text).map_err(|error| match other(&text) {
        Some(found) => anyhow!(
            "`{}` is {found}, not a cluster file\nhint: `executor calibrate -o cluster.json` writes one of this machine, and \
             `planner list clusters --format json` has those that ship",
            path.display()
        ),
        None => anyhow::Error::new(error).context(format!("`{}`", path.display())),
    })
}

/// The kind of a JSON text that is evidently not a cluster file.
fn other(text: &str) -> Option<&'static str> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let has = |key: &str| value.get(key).is_some();
    match () {
        () if value.is_array() => Some("a list"),
        () if has("layout") && has("prediction") => Some("a plan"),
        () if has("traceEvents") => Some("a timeline"),
        () if has("kernels") && has("abilities") => Some("a framework file"),
        () if has("model_type") || has("architecture") || has("format") => Some("a model"),
        () => None,
    }
}

/// Writes a cluster file, after checking that it can be read: the planner would refuse others.
pub(super) fn write(path: &Path, cluster: &Cluster) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(cluster)?;
    text.push('\n');
    Cluster::from_json(&text).context("the measurements make no cluster")?;
    write_output(path, text.as_bytes())
}

/// The cluster of this machine, for a device without a data sheet; network levels are empty.
pub(super) fn unlisted(
    gpu_name: String,
    architecture: Architecture,
    memory: Bytes,
    memory_bandwidth: BytesPerSecond,
    peak: BTreeMap<Precision, FlopsPerSecond>,
    host_link_bandwidth: BytesPerSecond,
) -> Cluster {
    Cluster {
        name: "this-machine".to_owned(),
        description: String::new(),
        preset: IgnoredAny,
        gpu: Gpu {
            name: gpu_name,
            architecture,
            memory,
            memory_bandwidth,
            peak,
            sustained: BTreeMap::new(),
            num_multiprocessors: None,
            power_watts: None,
            kernel_rates: None,
            measured: None,
        },
        gpus_per_node: 1,
        groups: Vec::new(),
        levels: Vec::new(),
        host_link_bandwidth,
        host: None,
        hosts: Vec::new(),
        communication_slowdown: None,
        sources: BTreeMap::new(),
    }
}

/// Distribution of a job's ranks over nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topology {
    /// Number of all ranks.
    pub(super) num_ranks: u32,
    /// Number of ranks of a node.
    pub(super) ranks_per_node: u32,
}

impl Topology {
    pub(super) fn new(num_ranks: u32, ranks_per_node: Option<NonZeroU32>) -> anyhow::Result<Self> {
        let ranks_per_node = ranks_per_node.map_or(num_ranks, NonZeroU32::get);
        ensure!(
            num_ranks.is_multiple_of(ranks_per_node),
            "`--ranks-per-node {ranks_per_node}` does not divide {num_ranks} ranks"
        );
        Ok(Self { num_ranks, ranks_per_node })
    }

    /// The levels of the network, innermost first; for each level, the partitions of all ranks into groups of one size,
    /// smallest first.
    pub(super) fn levels(self) -> Vec<Vec<Vec<Group>>> {
        let Self { num_ranks, ranks_per_node } = self;
        let sizes = |most: u32| (2..=most).filter(move |size| most.is_multiple_of(*size));
        let within = sizes(ranks_per_node).map(|size| groups(num_ranks, size, 1));
        let across = sizes(num_ranks / ranks_per_node);
        let across = across.map(|size| groups(num_ranks, size, ranks_per_node));
        let levels = [within.collect::<Vec<_>>(), across.collect()];
        levels.into_iter().filter(|ways| !ways.is_empty()).collect()
    }
}

/// The levels that are fitted to rows, which are grouped by level.
pub(super) fn fit_levels(
    topology: Topology,
    kind: CommunicatorKind,
    rows: &[Vec<TimedCollective>],
) -> Vec<FittedLevel> {
    let has_network = rows.len() > 1 || topology.ranks_per_node == 1;
    let last = rows.len().saturating_sub(1);
    let level = |(index, rows): (usize, &Vec<TimedCollective>)| {
        let name = match kind {
            _ if has_network && index == last => "network between nodes",
            CommunicatorKind::Local => "threads of a process",
            CommunicatorKind::Mpi => "processes of a node",
            CommunicatorKind::Nccl => "GPUs of a node",
        };
        fit_level(name, (index < last).then_some(topology.ranks_per_node), rows)
    };
    rows.iter().enumerate().filter_map(level).collect()
}

/// Errors of each collective's fit, as in `all-reduce 4.1 % of 26 times`.
pub(super) fn errors(level: &FittedLevel) -> String {
    let of = |error: &executor::collectives::KindError| {
        let percent = error.own * 100.0;
        format!("{} {percent:.1} % of {} times", error.collective, error.num_rows)
    };
    level.errors.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// Replaces the levels of a cluster, and names their source.
pub(super) fn set_levels(cluster: &mut Cluster, levels: &[FittedLevel], how: &str) {
    cluster.levels = levels.iter().map(|fitted| fitted.level.clone()).collect();
    for fitted in levels {
        let name = &fitted.level.name;
        let text = format!("{how}; mean relative errors: {}", errors(fitted));
        cluster.sources.insert(format!("levels: {name}"), text);
    }
    cluster.sources.retain(|field, _| !field.starts_with("levels."));
}

/// A time in microseconds, for tables.
pub(super) fn microseconds(time: Seconds) -> String {
    let value = time.get() * 1e6;
    let decimals = if value < 100.0 { 2 } else { usize::from(value < 1000.0) };
    format!("{value:.decimals$}")
}
