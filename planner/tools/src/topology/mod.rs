//! Descriptions of a network in files of Slurm, topograph, NCCL and `nvidia-smi`: which nodes are near each other, and
//! how the GPUs of a node are linked.

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

/// Description of a network in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// Nodes, grouped by the switches or blocks that join them: Slurm's `topology.conf` or `topology.yaml`, or
    /// topograph's model.
    Nodes(NodeTree),
    /// Links of the GPUs of a node: NCCL's topology in XML, or the output of `nvidia-smi topo -m`.
    Node(NodeLinks),
}

impl Topology {
    /// Reads a topology, of whichever kind it is.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] if the text is of no known kind, or incomplete.
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
    /// [`TopologyError::TooFew`] if the topology has fewer nodes than the job, [`TopologyError::NoGpus`] if a node has none.
    pub fn of_job(&self, cluster: Cluster, num_gpus: u32) -> Result<Cluster, TopologyError> {
        match self {
            Self::Nodes(switches) => switches.of_job(cluster, num_gpus),
            Self::Node(links) => links.of_node(cluster),
        }
    }
}

/// Warning about a level of a cluster that is slower than the next outer one.
pub fn slower_within(cluster: &Cluster) -> Option<String> {
    let pair = cluster.levels.windows(2).find(|pair| pair[0].bandwidth < pair[1].bandwidth)?;
    Some(format!(
        "`{}` has {} for a GPU, less than `{}` around it, which has {}",
        pair[0].name, pair[0].bandwidth, pair[1].name, pair[1].bandwidth
    ))
}
