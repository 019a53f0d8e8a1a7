//! Mistakes in topologies.

use ir::cluster::ClusterError;

/// Reason why a text is not a topology, or does not suit the job.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A text of an unknown kind.
    #[error(
        "no topology that is known\nhint: Slurm's `topology.conf` or `topology.yaml` (tree or block), a model of topograph, an NCCL topology \
         (`NCCL_TOPO_DUMP_FILE`), or the output of `nvidia-smi topo -m`"
    )]
    Unknown,
    /// Invalid XML.
    #[error("not whole as XML: {problem}")]
    Xml {
        /// The reader's reason, with its place.
        problem: String,
    },
    /// A line that cannot be read.
    #[error("line {line}: {problem}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The mistake.
        problem: String,
    },
    /// An entry of a list that cannot be read.
    #[error("{problem}")]
    Entry {
        /// The mistake.
        problem: String,
    },
    /// Switches that lead back to themselves.
    #[error("switch `{name}` is below itself: the tree has a cycle")]
    Cycle {
        /// One of these switches.
        name: String,
    },
    /// A switch with more switches above it than any network has.
    #[error("switch `{name}` is below {levels} others: a network has a few levels")]
    TooDeep {
        /// Name of the switch.
        name: String,
        /// Switches above it.
        levels: usize,
    },
    /// A switch that is named but not described.
    #[error("switch `{name}` is below `{above}`, but has no line of its own")]
    NoSwitch {
        /// Name of the switch.
        name: String,
        /// The switch that names it.
        above: String,
    },
    /// A node or switch that occurs twice in the tree.
    #[error("`{name}` is below `{first}` and below `{second}`")]
    Twice {
        /// Name of the node or switch.
        name: String,
        /// One of the switches above it.
        first: String,
        /// The other.
        second: String,
    },
    /// Fewer nodes than the job has.
    #[error(
        "it has {nodes} nodes of {gpus_per_node} GPUs, but {num_gpus} GPUs need {needed}\nhint: `--gpus {most}`"
    )]
    TooFew {
        /// Nodes of the topology.
        nodes: usize,
        /// GPUs of a node.
        gpus_per_node: u32,
        /// GPUs of the job.
        num_gpus: u32,
        /// Number of nodes that the job needs.
        needed: usize,
        /// GPUs of all nodes.
        most: u64,
    },
    /// A node without GPUs.
    #[error("it names no GPU")]
    NoGpus,
    /// A cluster that is not valid.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}
