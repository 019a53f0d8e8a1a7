//! Edges between nodes: topological order, cycles, and cuts into blocks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::error::NativeError;
use super::file::{Edge, Node};

/// Edges, by indices of their nodes in the file.
#[derive(Debug)]
pub(super) struct Wiring {
    /// For each node, the source nodes of its inputs, by slot.
    pub(super) inputs: Vec<Vec<usize>>,
    /// For each node, the consumers of its output.
    consumers: Vec<Vec<usize>>,
}

impl Wiring {
    pub(super) fn new(nodes: &[Node], edges: &[Edge]) -> Result<Self, NativeError> {
        let mut positions = BTreeMap::new();
        for (second, node) in nodes.iter().enumerate() {
            if let Some(first) = positions.insert(node.name.as_str(), second) {
                let name = node.name.clone();
                return Err(NativeError::DuplicateNode { name, first, second });
            }
        }
        let mut incoming: Vec<Vec<(Option<u64>, usize)>> = vec![Vec::new(); nodes.len()];
        let mut consumers = vec![Vec::new(); nodes.len()];
        for edge in edges {
            let find = |name: &String| {
                positions.get(name.as_str()).copied().ok_or_else(|| NativeError::DanglingEdge {
                    from: edge.from.clone(),
                    to: edge.to.clone(),
                    missing: name.clone(),
                })
            };
            let (from, to) = (find(&edge.from)?, find(&edge.to)?);
            incoming[to].push((edge.slot, from));
            consumers[from].push(to);
        }
        let inputs = nodes
            .iter()
            .zip(incoming)
            .map(|(node, edges)| by_slot(node, edges))
            .collect::<Result<_, _>>()?;
        Ok(Self { inputs, consumers })
    }

    /// Topological order of all nodes; among nodes that are ready, the first in the file comes first.
    pub(super) fn order(&self, nodes: &[Node]) -> Result<Vec<usize>, NativeError> {
        let mut missing: Vec<usize> = self.inputs.iter().map(Vec::len).collect();
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..nodes.len()).filter(|node| missing[*node] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for consumer in &self.consumers[node] {
                missing[*consumer] -= 1;
                if missing[*consumer] == 0 {
                    ready.push(Reverse(*consumer));
                }
            }
        }
        match (0..nodes.len()).find(|node| missing[*node] > 0) {
            None => Ok(order),
            Some(waiting) => Err(self.cycle(nodes, &missing, waiting)),
        }
    }

    /// Finds the cycle that `waiting` depends on, starting from its node with the lowest index.
    fn cycle(&self, nodes: &[Node], missing: &[usize], waiting: usize) -> NativeError {
        let mut path = vec![waiting];
        let mut met = BTreeMap::from([(waiting, 0)]);
        loop {
            let last = path[path.len() - 1];
            let next = self.inputs[last].iter().copied().find(|source| missing[*source] > 0);
            let next = next.expect("what waits for ever waits for something that does too");
            if let Some(start) = met.insert(next, path.len()) {
                let mut cycle: Vec<usize> = path[start..].iter().rev().copied().collect();
                let first = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or(0);
                cycle.rotate_left(first);
                let nodes = cycle.into_iter().map(|node| nodes[node].name.clone()).collect();
                return NativeError::Cycle { nodes };
            }
            path.push(next);
        }
    }

    /// Cuts `order` into blocks: a new block starts wherever a single tensor is live, unless the next node belongs to
    /// its predecessor or no operator has run yet.
    pub(super) fn cut(&self, nodes: &[Node], order: &[usize]) -> Vec<Vec<usize>> {
        let mut position = vec![0; nodes.len()];
        for (at, node) in order.iter().enumerate() {
            position[*node] = at;
        }
        // An output without consumers leaves the model, so it stays live to the end.
        let last_use = |node: usize| {
            self.consumers[node].iter().map(|user| position[*user]).max().unwrap_or(order.len())
        };
        let mut blocks = vec![Vec::new()];
        let mut live: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut has_operator = false;
        for (at, node) in order.iter().copied().enumerate() {
            if live.len() == 1 && has_operator && !nodes[node].kind.finishes() {
                blocks.push(Vec::new());
                has_operator = false;
            }
            blocks.last_mut().expect("there is a first block").push(node);
            has_operator |= !self.inputs[node].is_empty();
            live.insert((last_use(node), node));
            while live.first().is_some_and(|(last, _)| *last <= at) {
                live.pop_first();
            }
        }
        blocks
    }

    /// Nodes without consumers, in the order of the file.
    pub(super) fn sinks(&self) -> impl Iterator<Item = usize> {
        (0..self.consumers.len()).filter(|node| self.consumers[*node].is_empty())
    }
}

/// Sources of the edges into `node`, in the order of their slots.
fn by_slot(node: &Node, mut edges: Vec<(Option<u64>, usize)>) -> Result<Vec<usize>, NativeError> {
    let slots: BTreeSet<_> = edges.iter().map(|(slot, _)| *slot).collect();
    let stated_none = slots.iter().all(Option::is_none);
    let stated_all = slots.into_iter().eq((0..edges.len() as u64).map(Some));
    if !stated_none && !stated_all {
        let stated: Vec<String> = edges
            .iter()
            .map(|(slot, _)| slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string()))
            .collect();
        let (node, num_edges) = (node.name.clone(), edges.len());
        return Err(NativeError::Slots { node, num_edges, stated: stated.join(", ") });
    }
    edges.sort_by_key(|(slot, _)| *slot);
    Ok(edges.into_iter().map(|(_, source)| source).collect())
}
