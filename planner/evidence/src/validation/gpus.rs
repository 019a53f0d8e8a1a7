//! The cluster of a measured run.

use cost_models::clusters;
use ir::cluster::{Cluster, NetworkLevel, Wiring};
use ir::units::BytesPerSecond;

use super::row::{Row, Unsupported};

/// Presets by words that sources' names of GPUs have, in small letters and without what is between letters and
/// digits; the first of which all are there.
const GPUS: [(&[&str], &str); 33] = [
    (&["h100", "96gb"], "h100-96gb"),
    (&["h100", "pcie"], "h100-pcie"),
    (&["gh200"], "gh200"),
    (&["h200"], "h200"),
    (&["h100"], "h100"),
    (&["h800"], "h800"),
    (&["a100", "pcie"], "a100-pcie"),
    (&["a100", "40gb"], "a100-40gb"),
    (&["a100"], "a100"),
    (&["a800"], "a800"),
    (&["v100", "16gb"], "v100-16gb"),
    (&["v100"], "v100"),
    (&["gb200"], "gb200-nvl72"),
    (&["gb300"], "gb300-nvl72"),
    (&["b200"], "b200"),
    (&["b300"], "b300"),
    (&["mi250"], "mi250x"),
    (&["mi300"], "mi300x"),
    (&["mi325"], "mi325x"),
    (&["mi355"], "mi355x"),
    (&["gaudi2"], "gaudi2"),
    (&["gaudi3"], "gaudi3"),
    (&["l40s"], "l40s"),
    (&["rtx4090"], "rtx-4090"),
    (&["tpuv4"], "tpu-v4"),
    (&["tpuv5p"], "tpu-v5p"),
    (&["tpuv5e"], "tpu-v5e"),
    (&["tpuv5lite"], "tpu-v5e"),
    (&["tpuv6e"], "tpu-v6e"),
    (&["trillium"], "tpu-v6e"),
    (&["trainium2"], "trainium2"),
    (&["trn2"], "trainium2"),
    (&["l4"], "l4"),
];

/// That of a run: the preset of its GPU, with what the row states of links and nodes.
pub(super) fn cluster(row: &Row) -> Result<Cluster, Unsupported> {
    let gpu = row.text("gpu");
    let name: String = gpu.to_lowercase().chars().filter(|it| it.is_alphanumeric()).collect();
    let preset = GPUS.iter().find(|(words, _)| words.iter().all(|word| name.contains(word)));
    let mut cluster = preset
        .and_then(|(_, preset)| clusters::preset(preset))
        .ok_or_else(|| Unsupported::new(format!("no cluster is known with GPU `{gpu}`")))?;
    if let Some(gpus) = row.count("gpus_per_node")? {
        let gpus = u32::try_from(gpus).ok().filter(|gpus| *gpus > 0);
        let gpus = gpus.ok_or_else(|| Unsupported::new("`gpus_per_node` is no number of GPUs"))?;
        set_node(&mut cluster, gpus, gpu);
    }
    let [inner @ .., outer] = cluster.levels.as_mut_slice() else {
        return Err(Unsupported::new("its cluster has no network"));
    };
    let rate = |bytes: f64| BytesPerSecond::new(bytes);
    if let (Some(bandwidth), Some(node)) =
        (row.real("intra_node_bw_GBps_per_dir")?, inner.first_mut())
    {
        node.bandwidth = rate(bandwidth * 1e9);
    }
    if let Some(bandwidth) = row.real("inter_node_bw_Gbps_per_gpu")? {
        outer.bandwidth = rate(bandwidth * 1e9 / 8.0);
    }
    Ok(cluster)
}

/// Makes nodes of so many GPUs.
fn set_node(cluster: &mut Cluster, gpus: u32, name: &str) {
    cluster.gpus_per_node = gpus;
    match cluster.levels.first_mut() {
        // A network domain that was a node is a node again; larger ones stay.
        Some(node) if node.ranks.is_some_and(|ranks| ranks <= 8) => {
            node.ranks = Some(gpus);
            // 16 GPUs of a DGX-2 are the first with switches between them.
            if name.starts_with("V100-SXM3") {
                node.wiring = None;
            }
        }
        // Nodes of more than one GPU where the preset has one: four superchips have direct links to each other.
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

/// Bytes per second, in one direction, that a GH200 sends to the three others of its node together.
///
/// # Source
///
/// Quad GH200 (Alps, JUPITER, Isambard-AI): six links of 25 GB/s to each of three.
const QUAD_BANDWIDTH: f64 = 450e9;

/// Latency of direct links over that of the network between nodes: 1 us of 5, as in the preset of H200.
const DIRECT_LATENCY: f64 = 0.2;
