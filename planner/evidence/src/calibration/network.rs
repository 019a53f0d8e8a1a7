//! Refits the network of a cluster to measurements by nccl-tests.
//!
//! If each rank of a group is in its own domain (all ranks of a node, or one rank of each node), a collective takes the
//! measured times, size by size. Other group sizes follow the line
//!
//! ```text
//! t = start + steps latency + v S / W
//! ```
//!
//! fitted to all measurements of that collective on such groups. If only one group size was measured, start and steps
//! cannot be separated, so the known start is kept. Over nodes with several ranks each, one line for the level is
//! fitted to all collectives together; its `W` is the bandwidth of one GPU while all GPUs of the node communicate.

use std::collections::BTreeMap;

use cost_models::collectives::Crossed;
use cost_models::{Network, StridedGroup};
use ir::cluster::{Cluster, MeasuredCollective, MeasuredTime};
use ir::collective::Collective;
use ir::units::{Bytes, BytesPerSecond, Seconds};
use serde::{Serialize, Serializer};
use traces::statistics::{Fit, Sample, fit};

use crate::measured::UnusableFile;
use crate::measured::nccl_tests::NcclRun;

/// A cluster with a refitted network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefittedNetwork {
    /// The cluster with the measured values.
    pub cluster: Cluster,
    /// Result for each table.
    pub tables: Vec<RefittedTable>,
    /// Tables that were left out, with the reason.
    pub left_out: Vec<String>,
}

/// A table of nccl-tests, compared with predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefittedTable {
    /// Name of the network level that the table measures.
    pub level: String,
    /// The collective.
    #[serde(serialize_with = "by_name")]
    pub collective: Collective,
    /// Number of ranks.
    pub num_ranks: u32,
    /// Number of nodes.
    pub num_nodes: usize,
    /// Number of rows in the fit.
    pub samples: usize,
    /// The smallest buffer.
    pub smallest_bytes: Bytes,
    /// Predicted time of the smallest buffer before the fit.
    pub seconds_before: Seconds,
    /// Predicted time of the smallest buffer.
    pub seconds: Seconds,
    /// The largest buffer.
    pub largest_bytes: Bytes,
    /// Predicted bus bandwidth of the largest buffer before the fit.
    #[serde(rename = "bus_bandwidth_before_bytes_per_second")]
    pub bus_bandwidth_before: BytesPerSecond,
    /// Predicted bus bandwidth of the largest buffer.
    #[serde(rename = "bus_bandwidth_bytes_per_second")]
    pub bus_bandwidth: BytesPerSecond,
    /// Mean absolute relative error before the fit.
    pub mean_error_before: f64,
    /// Mean absolute relative error.
    pub mean_error: f64,
    /// Mean absolute relative error on rows left out of the fit, one third of the rows at a time; `None` if there are
    /// too few rows.
    pub mean_error_of_rows_left_out: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn by_name<S: Serializer>(collective: &Collective, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(collective.name())
}

/// The range of bandwidths that a cluster file allows, in bytes per second.
const SLOWEST: f64 = 1.0;
const FASTEST: f64 = 1e30;

/// Number of parts for cross-validation.
const PARTS: usize = 3;

/// A table, with the ranks of the cluster on which it was measured.
#[derive(Clone)]
struct Placed {
    collective: Collective,
    group: StridedGroup,
    crossed: Crossed,
    num_nodes: usize,
    rows: Vec<MeasuredTime>,
}

/// The cluster with its network refitted to nccl-tests, and the errors of predictions before and after.
///
/// # Errors
///
/// If no table was measured on ranks that the cluster has.
///
/// # Assumes
///
/// Ranks fill nodes in order. If a node has fewer ranks than GPUs, the ranks are spread evenly over it.
pub fn refit(cluster: &Cluster, runs: &[NcclRun]) -> Result<RefittedNetwork, UnusableFile> {
    let network = Network::new(cluster);
    let (mut placed, mut left_out) = (Vec::new(), Vec::new());
    for run in runs {
        match place(cluster, &network, run) {
            Ok(found) => placed.push(found),
            Err(why) => {
                let (collective, ranks) = (run.collective, run.num_ranks());
                left_out.push(format!("{collective} over {ranks} ranks: {why}"));
            }
        }
    }
    if placed.is_empty() {
        let reasons = left_out.join("\n  ");
        let why = format!("no table fits the cluster `{}`:\n  {reasons}", cluster.name);
        return Err(UnusableFile(why));
    }
    let refitted = fitted(cluster, &placed);
    let after = Network::new(&refitted);
    let parts: Vec<Network> = (0..PARTS).map(|part| without(cluster, &placed, part)).collect();
    let table = |table: &Placed| {
        let Placed { collective, group, rows, .. } = table;
        let of = |network: &Network, bytes| network.time(*collective, *group, bytes);
        let error = |network: &Network, row: &MeasuredTime| {
            (of(network, row.bytes).get() / row.seconds.get() - 1.0).abs()
        };
        let mean = |network: &Network| {
            rows.iter().map(|row| error(network, row)).sum::<f64>() / rows.len() as f64
        };
        let left_out = rows.iter().enumerate().map(|(at, row)| error(&parts[at % PARTS], row));
        let sizes = || rows.iter().map(|row| row.bytes);
        let smallest_bytes = sizes().min().unwrap_or(Bytes::ZERO);
        let largest_bytes = sizes().max().unwrap_or(Bytes::ZERO);
        let volume = collective.volume_factor(group.size) * largest_bytes.as_f64();
        let bus_bandwidth =
            |network| BytesPerSecond::new(volume / of(network, largest_bytes).get());
        RefittedTable {
            level: cluster.levels[table.crossed.level].name.clone(),
            collective: *collective,
            num_ranks: group.size,
            num_nodes: table.num_nodes,
            samples: rows.len(),
            smallest_bytes,
            seconds_before: of(&network, smallest_bytes),
            seconds: of(&after, smallest_bytes),
            largest_bytes,
            bus_bandwidth_before: bus_bandwidth(&network),
            bus_bandwidth: bus_bandwidth(&after),
            mean_error_before: mean(&network),
            mean_error: mean(&after),
            mean_error_of_rows_left_out: (rows.len() > 2 * PARTS)
                .then(|| left_out.sum::<f64>() / rows.len() as f64),
        }
    };
    Ok(RefittedNetwork { tables: placed.iter().map(table).collect(), cluster: refitted, left_out })
}

/// Ranks of the cluster on which a test ran.
fn place(cluster: &Cluster, network: &Network, run: &NcclRun) -> Result<Placed, String> {
    let size = run.num_ranks();
    let per_node = run.ranks_by_host.first().copied().unwrap_or(0);
    let (nodes, gpus) = (run.ranks_by_host.len(), cluster.gpus_per_node);
    if run.ranks_by_host.iter().any(|ranks| *ranks != per_node) {
        return Err(format!("hosts have unequal numbers of ranks, {:?}", run.ranks_by_host));
    }
    if per_node > gpus {
        return Err(format!("a host has {per_node} ranks, and a node of the cluster {gpus} GPUs"));
    }
    if nodes > 1 && !gpus.is_multiple_of(per_node) {
        return Err(format!("{per_node} ranks on each of {nodes} hosts of {gpus} GPUs"));
    }
    let stride = if nodes > 1 { gpus / per_node } else { 1 };
    let group = StridedGroup { size, stride };
    // As in a plan, messages go from one rank to its neighbour.
    let pair = StridedGroup { size: 2, ..group };
    let group = if run.collective == Collective::SendReceive { pair } else { group };
    if run.collective == Collective::SendReceive && nodes > 1 && per_node > 1 {
        return Err(
            "of messages, some stay within nodes and some do not: one rank a host tells".to_owned()
        );
    }
    let crossed = network.crossed(group).ok_or("one rank exchanges nothing")?;
    Ok(Placed {
        collective: run.collective,
        group,
        crossed,
        num_nodes: nodes,
        rows: run.rows.clone(),
    })
}

/// The network refitted without the rows of one part.
fn without(cluster: &Cluster, placed: &[Placed], part: usize) -> Network {
    let others = placed.iter().map(|table| {
        let rows = table.rows.iter().enumerate().filter(|(at, _)| at % PARTS != part);
        Placed { rows: rows.map(|(_, row)| *row).collect(), ..table.clone() }
    });
    let others: Vec<Placed> = others.filter(|table| !table.rows.is_empty()).collect();
    Network::new(&fitted(cluster, &others))
}

fn fitted(cluster: &Cluster, placed: &[Placed]) -> Cluster {
    let network = Network::new(cluster);
    let mut cluster = cluster.clone();
    let mut direct: BTreeMap<(usize, Collective), Vec<&Placed>> = BTreeMap::new();
    let mut over_nodes: BTreeMap<usize, Vec<&Placed>> = BTreeMap::new();
    for table in placed {
        let Crossed { level, below, .. } = table.crossed;
        match below {
            1 => direct.entry((level, table.collective)).or_default().push(table),
            _ => over_nodes.entry(level).or_default().push(table),
        }
    }
    for ((level, collective), tables) in direct {
        let line = fit(&samples(&tables));
        let (start, latency, bandwidth) = if tables.iter().all(|it| it.group == tables[0].group) {
            numbers(&with_start(network.start(level).unwrap_or(Seconds::ZERO), &tables))
        } else {
            numbers(&line)
        };
        let mut of_size: BTreeMap<u32, Vec<MeasuredTime>> = BTreeMap::new();
        for table in tables {
            of_size.entry(table.group.size).or_default().extend(&table.rows);
        }
        let measured = MeasuredCollective {
            start,
            latency,
            bandwidth,
            mean_error: rounded(line.mean_error),
            times: of_size.into_iter().map(|(ranks, rows)| (ranks, not_falling(&rows))).collect(),
        };
        cluster.levels[level].measured.insert(collective, measured);
    }
    for (level, tables) in over_nodes {
        for _ in 0..ROUNDS {
            let network = Network::new(&cluster);
            let level = &mut cluster.levels[level];
            let of_level = level.bandwidth;
            let (start, latency, bandwidth) =
                numbers(&fit(&samples_over_nodes(&network, of_level, &tables)));
            level.start = Some(start);
            level.latency = latency;
            level.bandwidth = bandwidth.unwrap_or(of_level);
        }
    }
    cluster
}

/// Number of iterations of the decision which part of a collective is slower: within nodes or between them.
const ROUNDS: usize = 6;

/// Least-squares samples, one for each row: the constant 1, the number of steps, and the bytes that a rank sends.
fn samples(tables: &[&Placed]) -> Vec<Sample<3>> {
    let of_table = |table: &&Placed| -> Vec<Sample<3>> {
        let Placed { collective, group, .. } = **table;
        let (steps, volume) = (collective.steps(group.size), collective.volume_factor(group.size));
        let sample = |row: &MeasuredTime| Sample {
            quantities: [1.0, steps, volume * row.bytes.as_f64()],
            known: 0.0,
            time: row.seconds.get(),
        };
        table.rows.iter().map(sample).collect()
    };
    tables.iter().flat_map(of_table).collect()
}

/// The line of tables with only one group size. Start and steps cannot be separated there, so the start is the known
/// one.
fn with_start(start: Seconds, tables: &[&Placed]) -> Fit<3> {
    let mut samples = samples(tables);
    for sample in &mut samples {
        (sample.quantities[0], sample.known) = (0.0, start.get().min(sample.time));
    }
    let Fit { costs: [_, latency, each], mean_error } = fit(&samples);
    Fit { costs: [start.get(), latency, each], mean_error }
}

/// Least-squares samples over nodes with several ranks each, whose links share the traffic of a node. Traffic between
/// nodes is overlapped with the part within nodes, so the slower part counts; if that is the part within nodes, its
/// time is known.
fn samples_over_nodes(
    network: &Network,
    bandwidth: BytesPerSecond,
    tables: &[&Placed],
) -> Vec<Sample<3>> {
    let of_table = |table: &&Placed| -> Vec<Sample<3>> {
        let Placed { collective, group, crossed: Crossed { below, members, .. }, .. } = **table;
        let steps = collective.steps(members.div_ceil(below));
        let [n, inside, all] = [group.size, below, members].map(f64::from);
        let volume = match collective {
            Collective::AllToAll => (all - inside) / n,
            _ => collective.volume_factor(group.size) / inside,
        };
        let node = StridedGroup { size: below, ..group };
        let sample = |row: &MeasuredTime| {
            let bytes = row.bytes.as_f64();
            let of_node =
                if collective == Collective::AllToAll { bytes * inside / n } else { bytes };
            let within = network.time(collective, node, Bytes::from_f64(of_node)).get();
            let is_within = within > volume * bytes / bandwidth.get();
            let (known, volume) = if is_within { (within, 0.0) } else { (0.0, volume) };
            Sample { quantities: [1.0, steps, volume * bytes], known, time: row.seconds.get() }
        };
        table.rows.iter().map(sample).collect()
    };
    tables.iter().flat_map(of_table).collect()
}

/// Start and latency of a line, and its bandwidth if bytes take time.
fn numbers(line: &Fit<3>) -> (Seconds, Seconds, Option<BytesPerSecond>) {
    let [start, latency, each] = line.costs;
    let bandwidth = (each > 0.0).then(|| (1.0 / each).clamp(SLOWEST, FASTEST));
    let seconds = |time| Seconds::new(rounded(time));
    (seconds(start), seconds(latency), bandwidth.map(|it| BytesPerSecond::new(rounded(it))))
}

/// Mean times by size, each size once. If a larger size took less time, both take their mean, since no collective gets
/// faster with more bytes.
fn not_falling(rows: &[MeasuredTime]) -> Vec<MeasuredTime> {
    let mut by_size: BTreeMap<Bytes, (f64, f64)> = BTreeMap::new();
    for row in rows {
        let (sum, count) = by_size.entry(row.bytes).or_default();
        *sum += row.seconds.get().ln();
        *count += 1.0;
    }
    // Pools of neighbouring sizes: sum of logarithms of times, count, sizes.
    let mut pools: Vec<(f64, f64, Vec<Bytes>)> = Vec::new();
    for (bytes, (sum, count)) in by_size {
        pools.push((sum, count, vec![bytes]));
        while let [.., before, last] = pools.as_mut_slice() {
            if before.0 / before.1 <= last.0 / last.1 {
                break;
            }
            before.0 += last.0;
            before.1 += last.1;
            before.2.append(&mut last.2);
            pools.pop();
        }
    }
    let of_pool = |(sum, count, sizes): (f64, f64, Vec<Bytes>)| {
        let seconds = Seconds::new(rounded((sum / count).exp()));
        sizes.into_iter().map(move |bytes| MeasuredTime { bytes, seconds })
    };
    pools.into_iter().flat_map(of_pool).collect()
}

/// Rounds to five significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
