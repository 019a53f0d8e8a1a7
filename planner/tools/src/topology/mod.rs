//! Facts on a network in files of Slurm, topograph, NCCL and `nvidia-smi`: which nodes are near each other, and how the
//! GPUs of a node are linked.

mod error;
mod nccl;
mod node;
mod nvidia_smi;
mod slurm;
mod tree;
mod yaml;

use ir::cluster::Cluster;

pub use error::TopologyError;
pub use node::NodeLinks;
pub use tree::{Leaf, NodeTree};

/// Facts on a network in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// Nodes by the switches or blocks that join them: Slurm's `topology.conf` or `topology.yaml`, topograph's model.
    Nodes(NodeTree),
    /// Links of the GPUs of a node: NCCL's topology in XML, or what `nvidia-smi topo -m` prints.
    Node(NodeLinks),
}

impl Topology {
    /// Reads a topology, of whichever kind it is.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] where it is of no known kind, or not whole.
    pub fn read(text: &str) -> Result<Self, TopologyError> {
        if text.trim_start().starts_with('<') {
            return nccl::read(text).map(Self::Node);
        }
        if slurm::is_topology(text) {
            return slurm::read(text).map(Self::Nodes);
        }
        if nvidia_smi::is_topology(text) {
            return nvidia_smi::read(text).map(Self::Node);
        }
        if let Some(tree) = yaml::read(text) {
            return tree.map(Self::Nodes);
        }
        Err(TopologyError::Unknown)
    }

    /// The cluster with this topology, for a job on `num_gpus` GPUs.
    ///
    /// # Errors
    ///
    /// [`TopologyError::TooFew`] where it has fewer nodes than the job.
    pub fn of_job(&self, cluster: Cluster, num_gpus: u32) -> Result<Cluster, TopologyError> {
        match self {
            Self::Nodes(switches) => switches.of_job(cluster, num_gpus),
            Self::Node(links) => links.of_node(cluster),
        }
    }
}

/// Warning about a cluster's levels: an inner one that is slower than the next.
pub fn slower_within(cluster: &Cluster) -> Option<String> {
    let pair = cluster.levels.windows(2).find(|pair| pair[0].bandwidth < pair[1].bandwidth)?;
    Some(format!(
        "`{}` has {} for a GPU, less than `{}` around it, which has {}",
        pair[0].name, pair[0].bandwidth, pair[1].name, pair[1].bandwidth
    ))
}
