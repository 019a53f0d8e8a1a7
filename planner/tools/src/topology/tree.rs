//! Nodes grouped by the switches or blocks that join them, and the nodes of a job.

use std::collections::{BTreeMap, BTreeSet};

use ir::cluster::{Cluster, NetworkLevel};

use super::error::TopologyError;

/// Nodes that share a switch or a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Name of the switch or block.
    pub name: String,
    /// Names of the switches above it, outermost first.
    pub above: Vec<String>,
    /// Names of its nodes.
    pub nodes: Vec<String>,
}

/// Nodes grouped by the switches or blocks that join them; neighbours in the tree are next to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTree {
    /// The leaves, in the order of the tree.
    pub leaves: Vec<Leaf>,
    /// True if the leaves are blocks.
    pub is_blocks: bool,
}

/// A switch in a file: its nodes, and the switches below it.
#[derive(Debug, Default)]
pub(super) struct Switch {
    pub(super) nodes: Vec<String>,
    pub(super) below: Vec<String>,
}

/// Largest number of levels of switches.
const MOST_LEVELS: usize = 64;

/// Adds the leaves below a switch to `leaves`, and the switch with its parent to `reached`.
fn add_leaves(
    name: &str,
    above: &mut Vec<String>,
    switches: &BTreeMap<String, Switch>,
    leaves: &mut Vec<Leaf>,
    reached: &mut BTreeMap<String, String>,
) -> Result<(), TopologyError> {
    if above.iter().any(|it| it == name) {
        return Err(TopologyError::Cycle { name: name.to_owned() });
    }
    let Some(switch) = switches.get(name) else {
        let above = above.last().cloned().unwrap_or_default();
        return Err(TopologyError::NoSwitch { name: name.to_owned(), above });
    };
    if !switch.nodes.is_empty() {
        let (nodes, above) = (switch.nodes.clone(), above.clone());
        leaves.push(Leaf { name: name.to_owned(), above, nodes });
    }
    let parent = above.last().cloned().unwrap_or_default();
    if let Some(first) = reached.insert(name.to_owned(), parent.clone()) {
        return Err(TopologyError::Twice { name: name.to_owned(), first, second: parent });
    }
    if above.len() > MOST_LEVELS {
        return Err(TopologyError::TooDeep { name: name.to_owned(), levels: above.len() });
    }
    above.push(name.to_owned());
    for below in &switch.below {
        add_leaves(below, above, switches, leaves, reached)?;
    }
    above.pop();
    Ok(())
}

/// Refuses nodes that are in two leaves.
fn check_nodes(leaves: &[Leaf]) -> Result<(), TopologyError> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for leaf in leaves {
        for node in &leaf.nodes {
            if let Some(first) = seen.insert(node, &leaf.name) {
                let (first, second) = (first.to_owned(), leaf.name.clone());
                return Err(TopologyError::Twice { name: node.clone(), first, second });
            }
        }
    }
    Ok(())
}

impl NodeTree {
    /// The tree of switches, in the order of the file. Each switch must be described, and none may be below itself.
    pub(super) fn of_switches(
        order: &[String],
        switches: &BTreeMap<String, Switch>,
        is_blocks: bool,
    ) -> Result<Self, TopologyError> {
        let below: BTreeSet<&String> = switches.values().flat_map(|it| &it.below).collect();
        let roots: Vec<&String> = order.iter().filter(|name| !below.contains(name)).collect();
        if roots.is_empty()
            && let Some(name) = order.first()
        {
            return Err(TopologyError::Cycle { name: name.clone() });
        }
        let (mut leaves, mut reached) = (Vec::new(), BTreeMap::new());
        for root in roots {
            add_leaves(root, &mut Vec::new(), switches, &mut leaves, &mut reached)?;
        }
        check_nodes(&leaves)?;
        match order.iter().find(|name| !reached.contains_key(*name)) {
            Some(name) => Err(TopologyError::Cycle { name: name.clone() }),
            None => Ok(Self { leaves, is_blocks }),
        }
    }

    /// Number of nodes.
    fn num_nodes(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.nodes.len()).sum()
    }

    /// The cluster with nodes of this tree, for a job on `num_gpus` GPUs. Nodes that share a leaf are consecutive, and
    /// the leaves become a level of the network.
    pub(super) fn of_job(
        &self,
        mut cluster: Cluster,
        num_gpus: u32,
    ) -> Result<Cluster, TopologyError> {
        let gpus_per_node = cluster.gpus_per_node.max(1);
        let needed = num_gpus.div_ceil(gpus_per_node) as usize;
        let nodes = self.num_nodes();
        if needed > nodes {
            let most = nodes as u64 * u64::from(gpus_per_node);
            return Err(TopologyError::TooFew { nodes, gpus_per_node, num_gpus, needed, most });
        }
        let chosen = self.chosen(needed);
        cluster.hosts =
            chosen.iter().flat_map(|(leaf, count)| leaf.nodes[..*count].to_vec()).collect();
        if chosen.len() > 1 {
            let together =
                chosen.iter().fold(0, |divisor, (_, count)| common_divisor(divisor, *count));
            // If the numbers of nodes in the leaves have little in common, the smallest counts: few groups of ranks end
            // within one.
            let least = chosen.iter().map(|(_, count)| *count).min().unwrap_or(together);
            let together = if together * 2 < least { least } else { together };
            let ranks = u32::try_from(together).unwrap_or(u32::MAX).saturating_mul(gpus_per_node);
            self.set_level(&mut cluster, ranks, gpus_per_node);
        }
        Ok(cluster)
    }

    /// Leaves, with the number of nodes to take from each. From the smallest part of the tree that has enough nodes,
    /// the fewest leaves are taken; nodes are spread evenly over them if that needs no further leaf.
    fn chosen(&self, needed: usize) -> Vec<(&Leaf, usize)> {
        let part = self.smallest_part(needed);
        let mut by_size: Vec<usize> = (0..part.len()).collect();
        by_size.sort_by_key(|at| (std::cmp::Reverse(part[*at].nodes.len()), *at));
        let mut count = 0;
        let mut taken = Vec::new();
        for at in by_size {
            if count < needed {
                count += part[at].nodes.len();
                taken.push(at);
            }
        }
        taken.sort_unstable();
        let each = needed / taken.len().max(1);
        let is_even = needed.is_multiple_of(taken.len().max(1))
            && taken.iter().all(|at| part[*at].nodes.len() >= each);
        let mut left = needed;
        let of_leaf = |at: usize| {
            let count = if is_even { each } else { part[at].nodes.len().min(left) };
            left -= count;
            (part[at], count)
        };
        taken.into_iter().map(of_leaf).filter(|(_, count)| *count > 0).collect()
    }

    /// Leaves below the smallest switch that has enough nodes; all leaves if no switch has.
    fn smallest_part(&self, needed: usize) -> Vec<&Leaf> {
        let size = |leaves: &[&Leaf]| leaves.iter().map(|leaf| leaf.nodes.len()).sum::<usize>();
        let alone = self.leaves.iter().map(|leaf| vec![leaf]);
        let names: BTreeSet<&String> = self.leaves.iter().flat_map(|leaf| &leaf.above).collect();
        let below = names.into_iter().map(|name| {
            self.leaves.iter().filter(|leaf| leaf.above.contains(name)).collect::<Vec<_>>()
        });
        let enough = alone.chain(below).filter(|leaves| size(leaves) >= needed);
        enough.min_by_key(|leaves| size(leaves)).unwrap_or_else(|| self.leaves.iter().collect())
    }

    /// Makes domains of `ranks` ranks a level of the network. An existing level that is wider than a node is limited to
    /// `ranks`; otherwise a level is inserted below the outermost one.
    fn set_level(&self, cluster: &mut Cluster, ranks: u32, gpus_per_node: u32) {
        let is_wider =
            |level: &NetworkLevel| level.ranks.is_some_and(|ranks| ranks > gpus_per_node);
        if let Some(level) = cluster.levels.iter_mut().find(|level| is_wider(level)) {
            level.ranks = level.ranks.map(|all| all.min(ranks));
            return;
        }
        if ranks <= gpus_per_node {
            return;
        }
        if let Some(outermost) = cluster.levels.last().cloned() {
            let kind = if self.is_blocks { "block" } else { "leaf switch" };
            let name = format!("{}, {kind}", outermost.name);
            let level = NetworkLevel { name, ranks: Some(ranks), ..outermost };
            let at = cluster.levels.len() - 1;
            cluster.levels.insert(at, level);
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
