//! Rates at which components of a cluster fail.

use serde::{Deserialize, Serialize};

/// Owner of one component: a GPU, a node, or the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each GPU.
    Gpu,
    /// Each node.
    Node,
    /// The whole job, however large it is.
    Job,
}

/// A cause of interruptions, with its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Name of the component.
    pub component: String,
    /// Owner of one component.
    pub per: Per,
    /// Mean hours between the failures of one of them.
    pub mtbf_hours: f64,
    /// True if the node is taken out and repaired; false if it goes on after a restart.
    #[serde(default = "yes")]
    pub replaces_node: bool,
}

fn yes() -> bool {
    true
}

/// Unexpected interruptions by cause: the owner of the component, the number of interruptions, and whether the hardware
/// is at fault, so that the node is taken out.
///
/// # Source
///
/// Grattafiori et al. 2024, *The Llama 3 Herd of Models* (arXiv 2407.21783), table 5: 419 in 54 days on 16,384 GPUs, 8
/// to a node. The source does not say which of them take a node out. Here, interruptions by software do not.
const LLAMA_3: [(&str, Per, u32, bool); 18] = [
    ("faulty GPU", Per::Gpu, 148, true),
    ("GPU HBM3 memory", Per::Gpu, 72, true),
    ("software bug", Per::Gpu, 54, false),
    ("network switch or cable", Per::Gpu, 35, true),
    ("host maintenance", Per::Node, 32, true),
    ("GPU SRAM memory", Per::Gpu, 19, true),
    ("GPU system processor", Per::Gpu, 17, true),
    ("NIC", Per::Node, 7, true),
    ("NCCL watchdog timeout", Per::Gpu, 7, false),
    ("silent data corruption", Per::Gpu, 6, true),
    ("GPU thermal interface or sensor", Per::Gpu, 6, true),
    ("SSD", Per::Node, 3, true),
    ("power supply", Per::Node, 3, true),
    ("server chassis", Per::Node, 2, true),
    ("IO expansion board", Per::Node, 2, true),
    ("dependency", Per::Gpu, 2, false),
    ("CPU", Per::Node, 2, true),
    ("system memory", Per::Node, 2, true),
];

impl Component {
    /// The rates of Llama 3 405B's run.
    pub fn of_llama_3() -> Vec<Self> {
        const HOURS: f64 = 54.0 * 24.0;
        let of = |(component, per, count, replaces_node): (&str, Per, u32, bool)| {
            let number = if per == Per::Node { 2048.0 } else { 16_384.0 };
            let mtbf_hours = number * HOURS / f64::from(count);
            Self { component: component.to_owned(), per, mtbf_hours, replaces_node }
        };
        LLAMA_3.into_iter().map(of).collect()
    }

    /// Rate of GPUs that each fail every `mtbf_hours`, with failures of all other hardware counted among theirs.
    pub fn of_gpu(mtbf_hours: f64) -> Vec<Self> {
        vec![Self { component: "GPU".to_owned(), per: Per::Gpu, mtbf_hours, replaces_node: true }]
    }

    /// Failures per second of this component, on these GPUs and nodes.
    pub(super) fn rate(&self, num_gpus: f64, num_nodes: f64) -> f64 {
        let number = match self.per {
            Per::Gpu => num_gpus,
            Per::Node => num_nodes,
            Per::Job => 1.0,
        };
        number / (self.mtbf_hours * 3600.0)
    }
}
