//! The cluster of a measured run.

use ir::cluster::{Cluster, NetworkLevel, Wiring};
use ir::units::BytesPerSecond;

use super::run::{MeasuredCluster, Unsupported};

/// The cluster of a run: a preset, with the run's own nodes and links if it states them.
pub(super) fn cluster(
    stated: &MeasuredCluster,
    mut cluster: Cluster,
) -> Result<Cluster, Unsupported> {
    if let Some(gpus) = stated.gpus_per_node {
        set_node(&mut cluster, gpus, stated.has_switches);
    }
    let [inner @ .., outer] = cluster.levels.as_mut_slice() else {
        return Err(Unsupported::new("its cluster has no network"));
    };
    if let (Some(bandwidth), Some(node)) = (stated.node_bytes_per_second, inner.first_mut()) {
        set_bandwidth(node, bandwidth);
    }
    if let Some(bandwidth) = stated.network_bytes_per_second {
        set_bandwidth(outer, bandwidth);
    }
    Ok(cluster)
}

/// Sets the bandwidth of a level, which then goes without rates that were measured at another.
fn set_bandwidth(level: &mut NetworkLevel, bytes_per_second: f64) {
    let bandwidth = BytesPerSecond::new(bytes_per_second);
    if level.bandwidth != bandwidth {
        level.bandwidth = bandwidth;
        level.collective_rates = None;
    }
}

/// Sets the number of GPUs per node.
fn set_node(cluster: &mut Cluster, gpus: u32, has_switches: bool) {
    cluster.gpus_per_node = gpus;
    match cluster.levels.first_mut() {
        // A network domain that equalled a node gets the new size; larger domains keep theirs.
        Some(node) if node.ranks.is_some_and(|ranks| ranks <= 8) => {
            node.ranks = Some(gpus);
            if has_switches {
                node.wiring = None;
            }
        }
        // Adds a level for nodes of several GPUs to a preset with one GPU per node: four superchips have direct links
        // to each other.
        Some(network) if network.ranks.is_none() && gpus > 1 => {
            let node = NetworkLevel {
                name: "NVLink 4".to_owned(),
                ranks: Some(gpus),
                bandwidth: BytesPerSecond::new(QUAD_BANDWIDTH),
                wiring: Some(Wiring::Mesh),
                latency: network.latency * DIRECT_LATENCY,
                ..network.clone()
            };
            cluster.levels.insert(0, node);
        }
        _ => {}
    }
}

/// Bytes per second, in one direction, from a GH200 to the three others of its node together.
///
/// # Source
///
/// Quad GH200 (Alps, JUPITER, Isambard-AI): six links of 25 GB/s to each of the three others.
const QUAD_BANDWIDTH: f64 = 450e9;

/// Latency of direct links relative to that of the network between nodes: 1 us to 5 us, as in the preset of H200.
const DIRECT_LATENCY: f64 = 0.2;
