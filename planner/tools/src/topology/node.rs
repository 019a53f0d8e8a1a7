//! Links of the GPUs of a node.

use ir::cluster::{Architecture, Cluster, Gpu, NetworkLevel, Wiring};
use ir::units::BytesPerSecond;

use super::error::TopologyError;

/// Links of the GPUs of a node, and its network interfaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLinks {
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of NVLinks of a GPU, and number of GPUs that they join; `None` if the file does not say.
    pub nvlinks: Option<[u32; 2]>,
    /// True if a GPU's NVLinks lead directly to the other GPUs, so that the traffic to each of them has only a share of
    /// the links.
    pub is_mesh: bool,
    /// Number of network interfaces; 0 if the file does not say.
    pub interfaces: u32,
    /// Bandwidth of all interfaces together, in one direction, if the file says.
    pub interface_bandwidth: Option<BytesPerSecond>,
}

/// Relative difference up to which the bandwidth in a file counts as equal to the level's.
const SAME: f64 = 0.1;

/// Bandwidth of an NVLink, one direction.
///
/// # Source
///
/// NVIDIA's white papers of V100, A100, GA102, H100 and Blackwell.
fn of_nvlink(gpu: &Gpu) -> Option<f64> {
    const GA102: [&str; 4] = ["A40", "A6000", "A5000", "3090"];
    match gpu.architecture {
        Architecture::Ampere if GA102.iter().any(|name| gpu.name.contains(name)) => Some(14.0625e9),
        Architecture::Volta | Architecture::Ampere | Architecture::Hopper => Some(25e9),
        Architecture::Blackwell => Some(50e9),
        _ => None,
    }
}

impl NodeLinks {
    /// The cluster, with nodes that have these links. A level that does not change keeps its measured rates.
    pub(super) fn of_node(&self, mut cluster: Cluster) -> Result<Cluster, TopologyError> {
        if self.gpus == 0 {
            return Err(TopologyError::NoGpus);
        }
        let before = cluster.gpus_per_node;
        cluster.gpus_per_node = self.gpus;
        if let Some(first) = cluster.levels.first_mut()
            && first.ranks == Some(before)
        {
            first.ranks = Some(self.gpus);
        }
        self.set_links(&mut cluster);
        self.set_interfaces(&mut cluster, before);
        Ok(cluster)
    }

    fn set_links(&self, cluster: &mut Cluster) {
        let Some([count, joined]) = self.nvlinks else { return };
        let within = BytesPerSecond::new(cluster.host_link_bandwidth.get());
        let link = of_nvlink(&cluster.gpu).map(|link| link * f64::from(count));
        let Some(first) = cluster.levels.first_mut() else { return };
        let bandwidth = if count == 0 { Some(within.get()) } else { link };
        let Some(bandwidth) = bandwidth else { return };
        let is_same = (first.bandwidth.get() / bandwidth - 1.0).abs() < SAME;
        let ranks = if count == 0 { self.gpus } else { joined };
        if !is_same || first.ranks.is_some_and(|it| it < ranks) {
            first.name = if count == 0 { "PCIe".to_owned() } else { format!("{count} NVLinks") };
            first.bandwidth = BytesPerSecond::new(bandwidth);
            first.collective_rates = None;
        }
        if count > 0 && self.is_mesh && ranks > 2 {
            first.wiring = Some(Wiring::Mesh);
        }
        if ranks < self.gpus && count > 0 {
            let through_host = NetworkLevel {
                name: "PCIe".to_owned(),
                ranks: Some(self.gpus),
                bandwidth: within,
                collective_rates: None,
                ..first.clone()
            };
            first.ranks = Some(ranks);
            cluster.levels.insert(1, through_host);
        }
    }

    /// Sets the interfaces of a node. GPUs that share an interface share its bandwidth. If the file states no speed, an
    /// interface is as fast as those of the cluster, whose nodes had `before` GPUs.
    fn set_interfaces(&self, cluster: &mut Cluster, before: u32) {
        let gpus = f64::from(self.gpus);
        let Some(outermost) = cluster.levels.last_mut().filter(|_| self.interfaces > 0) else {
            return;
        };
        let of_cluster = outermost.interfaces_per_node.unwrap_or(before).max(1);
        let of_interface = outermost.bandwidth.get() * f64::from(before) / f64::from(of_cluster);
        let used = self.interfaces.min(self.gpus);
        let shared = of_interface * f64::from(used) / gpus;
        let bandwidth = self.interface_bandwidth.map_or(shared, |all| all.get() / gpus);
        outermost.interfaces_per_node = (used < self.gpus).then_some(used);
        if (outermost.bandwidth.get() / bandwidth - 1.0).abs() >= SAME {
            outermost.bandwidth = BytesPerSecond::new(bandwidth);
            outermost.collective_rates = None;
        }
    }
}

/// Number of GPUs that a GPU reaches over links, including itself.
pub(super) fn reached(from: usize, gpus: usize, is_linked: impl Fn(usize, usize) -> bool) -> u32 {
    let mut seen = vec![false; gpus];
    let mut next = vec![from];
    seen[from] = true;
    while let Some(gpu) = next.pop() {
        for (other, seen) in seen.iter_mut().enumerate() {
            if !*seen && is_linked(gpu, other) {
                *seen = true;
                next.push(other);
            }
        }
    }
    u32::try_from(seen.into_iter().filter(|seen| *seen).count()).unwrap_or(u32::MAX)
}
