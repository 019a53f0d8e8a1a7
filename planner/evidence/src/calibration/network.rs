//! The network of a cluster, refitted to nccl-tests' tables.
//!
//! Where each rank of a group lies in a domain of its own (all ranks of a node, or one of each node), a collective takes
//! what was measured, size by size; other sizes of group follow the line
//!
//! ```text
//! t = start + steps latency + v S / W
//! ```
//!
//! through all that was measured of it there, with the start that was known where one size of group was measured, which
//! does not tell start and steps apart. Over nodes with several ranks each, the line is the level's own, of all
//! collectives together, with `W` the bandwidth of one GPU into it, all of the node's at once.

use std::collections::BTreeMap;

use cost_models::collectives::Crossed;
use cost_models::{Group, Network};
use ir::cluster::{Cluster, MeasuredCollective, MeasuredTime};
use ir::collective::Collective;
use ir::units::{Bytes, BytesPerSecond, Seconds};
use traces::statistics::{Fit, Sample, fit};

use crate::measured::nccl_tests::{NcclRow, NcclRun};

/// A cluster whose network was refitted.
#[derive(Clone, Debug, PartialEq)]
pub struct RefittedNetwork {
    /// The cluster, with what was measured.
    pub cluster: Cluster,
    /// What each table says.
    pub tables: Vec<RefittedTable>,
    /// Tables that were left out, with the reason.
    pub left_out: Vec<String>,
}

/// A table of nccl-tests beside what is predicted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RefittedTable {
    /// The level that it informs.
    pub level: String,
    /// The collective.
    pub collective: Collective,
    /// Ranks.
    pub num_ranks: u32,
    /// Nodes that they lie on.
    pub num_nodes: usize,
    /// Rows that were fitted to.
    pub samples: usize,
    /// The smallest buffer, and its time before and after.
    pub smallest: (Bytes, [Seconds; 2]),
    /// The largest, and the bus bandwidth that it reaches before and after.
    pub largest: (Bytes, [BytesPerSecond; 2]),
    /// The mean of the absolute relative errors before and after.
    pub errors: [f64; 2],
    /// The same of rows that were left out of the fit, a third at a time; none where there are too few.
    pub left_out_error: Option<f64>,
}

/// Why a network cannot be refitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// No table that the cluster has a place for.
    #[error("no table fits the cluster `{cluster}`:\n  {}", .reasons.join("\n  "))]
    NothingFits {
        /// Its name.
        cluster: String,
        /// Why each does not.
        reasons: Vec<String>,
    },
}

/// The slowest that anything is, in bytes per second, and the fastest: what a cluster file takes.
const SLOWEST: f64 = 1.0;
const FASTEST: f64 = 1e30;

/// How many parts rows are left out in.
const PARTS: usize = 3;

/// A table, and which ranks of the cluster it ran on.
#[derive(Clone)]
struct Placed {
    collective: Collective,
    group: Group,
    crossed: Crossed,
    num_nodes: usize,
    rows: Vec<NcclRow>,
}

/// The cluster with its network as nccl-tests found it, and how far that moved what is predicted.
///
/// # Errors
///
/// Where no table was measured on ranks that the cluster has.
///
/// # Assumes
///
/// Ranks fill nodes in order. Where a node has fewer ranks than GPUs they are spread over it evenly.
pub fn refit(cluster: &Cluster, runs: &[NcclRun]) -> Result<RefittedNetwork, NetworkError> {
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
        let cluster = cluster.name.clone();
        return Err(NetworkError::NothingFits { cluster, reasons: left_out });
    }
    let refitted = fitted(cluster, &placed);
    let after = Network::new(&refitted);
    let parts: Vec<Network> = (0..PARTS).map(|part| without(cluster, &placed, part)).collect();
    let table = |table: &Placed| {
        let Placed { collective, group, rows, .. } = table;
        let of = |network: &Network, bytes| network.time(*collective, *group, bytes);
        let error = |network: &Network, row: &NcclRow| {
            (of(network, row.bytes).get() / row.time.get() - 1.0).abs()
        };
        let mean = |network: &Network| {
            rows.iter().map(|row| error(network, row)).sum::<f64>() / rows.len() as f64
        };
        let left_out = rows.iter().enumerate().map(|(at, row)| error(&parts[at % PARTS], row));
        let sizes = || rows.iter().map(|row| row.bytes);
        let smallest = sizes().min().unwrap_or(Bytes::ZERO);
        let largest = sizes().max().unwrap_or(Bytes::ZERO);
        let volume = collective.volume_factor(group.size) * largest.as_f64();
        let both = [&network, &after];
        RefittedTable {
            level: cluster.levels[table.crossed.level].name.clone(),
            collective: *collective,
            num_ranks: group.size,
            num_nodes: table.num_nodes,
            samples: rows.len(),
            smallest: (smallest, both.map(|it| of(it, smallest))),
            largest: (largest, both.map(|it| BytesPerSecond::new(volume / of(it, largest).get()))),
            errors: both.map(mean),
            left_out_error: (rows.len() > 2 * PARTS)
                .then(|| left_out.sum::<f64>() / rows.len() as f64),
        }
    };
    Ok(RefittedNetwork { tables: placed.iter().map(table).collect(), cluster: refitted, left_out })
}

/// Which ranks of the cluster a test ran on.
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
    let group = Group { size, stride };
    // As a plan has them, messages go from one rank to its neighbour.
    let pair = Group { size: 2, ..group };
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

/// The network by all rows but those of a part.
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
        let mut of_size: BTreeMap<u32, Vec<NcclRow>> = BTreeMap::new();
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

/// How often it is asked anew which of a collective's two parts is the slower one, that within nodes or that between.
const ROUNDS: usize = 6;

/// What each row's time grows with, by the model: once, by its steps, and by what a rank sends.
fn samples(tables: &[&Placed]) -> Vec<Sample<3>> {
    let of_table = |table: &&Placed| -> Vec<Sample<3>> {
        let Placed { collective, group, .. } = **table;
        let (steps, volume) = (collective.steps(group.size), collective.volume_factor(group.size));
        let sample = |row: &NcclRow| Sample {
            quantities: [1.0, steps, volume * row.bytes.as_f64()],
            known: 0.0,
            time: row.time.get(),
        };
        table.rows.iter().map(sample).collect()
    };
    tables.iter().flat_map(of_table).collect()
}

/// The line of tables of one size of group, by which start and steps cannot be told apart: with the start that is known.
fn with_start(start: Seconds, tables: &[&Placed]) -> Fit<3> {
    let mut samples = samples(tables);
    for sample in &mut samples {
        (sample.quantities[0], sample.known) = (0.0, start.get().min(sample.time));
    }
    let Fit { costs: [_, latency, each], mean_error } = fit(&samples);
    Fit { costs: [start.get(), latency, each], mean_error }
}

/// The same over nodes with several ranks each, whose links share what leaves a node, beside what goes on within the
/// nodes: the slower of both counts, and where that is within, its time is known.
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
        let node = Group { size: below, ..group };
        let sample = |row: &NcclRow| {
            let bytes = row.bytes.as_f64();
            let of_node =
                if collective == Collective::AllToAll { bytes * inside / n } else { bytes };
            let within = network.time(collective, node, Bytes::from_f64(of_node)).get();
            let is_within = within > volume * bytes / bandwidth.get();
            let (known, volume) = if is_within { (within, 0.0) } else { (0.0, volume) };
            Sample { quantities: [1.0, steps, volume * bytes], known, time: row.time.get() }
        };
        table.rows.iter().map(sample).collect()
    };
    tables.iter().flat_map(of_table).collect()
}

/// Start and latency, and bandwidth where bytes cost anything.
fn numbers(line: &Fit<3>) -> (Seconds, Seconds, Option<BytesPerSecond>) {
    let [start, latency, each] = line.costs;
    let bandwidth = (each > 0.0).then(|| (1.0 / each).clamp(SLOWEST, FASTEST));
    let seconds = |time| Seconds::new(rounded(time));
    (seconds(start), seconds(latency), bandwidth.map(|it| BytesPerSecond::new(rounded(it))))
}

/// Times by size, each size once; where a larger one took less, both take their mean, as no collective gets faster with
/// more bytes.
fn not_falling(rows: &[NcclRow]) -> Vec<MeasuredTime> {
    let mut by_size: BTreeMap<Bytes, (f64, f64)> = BTreeMap::new();
    for row in rows {
        let (sum, count) = by_size.entry(row.bytes).or_default();
        *sum += row.time.get().ln();
        *count += 1.0;
    }
    // Pools of neighbours: sum of logarithms, count, sizes.
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

/// To five digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
