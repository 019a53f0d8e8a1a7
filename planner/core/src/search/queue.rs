//! The queue of a best-first search. Nodes are families of layouts (at first several families together), subfamilies
//! that share an assignment, and layouts.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ir::graph::Recompute;
use ir::layout::Layout;
use ir::schedule::ScheduleKind;
use ir::units::Nanos;

use super::family::{Family, ShapeFamily};

/// A node of the search: layouts, and a lower bound on their step times.
pub(super) struct Node {
    pub(super) bound: Nanos,
    /// Number of layouts.
    pub(super) size: u64,
    /// Tie-break between nodes with the same bound, before the layout.
    pub(super) order: u64,
    pub(super) branch: Branch,
}

/// The layouts of a node.
pub(super) enum Branch {
    /// All layouts of the families of a shape family that may fit in memory.
    ShapeFamily(Box<ShapeFamily>),
    /// All layouts of a family, with a looser lower bound for the CUDA graphs that save most host time, so that shapes
    /// are costed only for families that the search reaches.
    BestGraphsOfFamily(Family),
    /// All layouts of a family.
    Family(Family),
    /// The layouts of a family with the same stages.
    Subfamily(Family, Subfamily),
    /// One layout, with the ends of its stages; boxed, as most nodes are families.
    Layout(Box<(Layout, Arc<[usize]>)>),
}

/// Options that layouts with the same stages have in common.
#[derive(Clone, Copy)]
pub(super) struct Subfamily {
    pub(super) recompute: Recompute,
    pub(super) schedule: ScheduleKind,
    pub(super) virtual_stages: u32,
}

/// Number of passes beyond which the simulation of a layout takes some hundredths of a second.
const MANY_PASSES: u64 = 1 << 16;

impl Node {
    /// The layout of a node that is one layout.
    fn layout(&self) -> Option<&Layout> {
        match &self.branch {
            Branch::Layout(of) => Some(&of.0),
            _ => None,
        }
    }

    /// True if the simulation of the node may take long.
    pub(super) fn is_long(&self) -> bool {
        let Some(layout) = self.layout() else { return false };
        let stages = u64::from(layout.pipeline_parallel) * u64::from(layout.virtual_stages);
        stages * u64::from(layout.num_micro_batches) > MANY_PASSES
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Node {
    /// The node with the least bound is the greatest, as a heap pops the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |it: &Self| (it.bound, it.order);
        key(other).cmp(&key(self)).then_with(|| other.layout().cmp(&self.layout()))
    }
}

/// Priority queue of nodes, the least lower bound first.
///
/// Layouts have their own queue: one is simulated with every batch, whatever its bound, so that there is a good plan
/// early in case the search is stopped.
#[derive(Default)]
pub(super) struct Queue {
    open: BinaryHeap<Node>,
    layouts: BinaryHeap<Node>,
    /// Number of nodes that were expanded.
    gone: usize,
}

/// Number of nodes between two looks at the best plans, without the early layout: few at first, when there is no plan
/// to compare with, and more later, as small batches make threads wait for each other.
const LEAST_BATCH: usize = 16;
const MOST_BATCH: usize = 256;

impl Queue {
    pub(super) fn of_shape_families(nodes: Vec<Node>) -> Self {
        Self { open: nodes.into(), ..Self::default() }
    }

    pub(super) fn push(&mut self, node: Node) {
        match node.branch {
            Branch::Layout(_) => self.layouts.push(node),
            _ => self.open.push(node),
        }
    }

    /// The node with the least lower bound.
    pub(super) fn peek(&self) -> Option<&Node> {
        self.open.peek().max(self.layouts.peek())
    }

    fn pop(&mut self) -> Option<Node> {
        if self.open.peek() > self.layouts.peek() { self.open.pop() } else { self.layouts.pop() }
    }

    /// The next batch of nodes whose bound is within the limit.
    pub(super) fn batch(&mut self, limit: Nanos) -> Vec<Node> {
        let is_within = |node: &Node| node.bound <= limit;
        let size = (self.gone / 16).clamp(LEAST_BATCH, MOST_BATCH);
        let next = || self.peek().is_some_and(is_within).then(|| self.pop()).flatten();
        let mut batch: Vec<Node> = std::iter::from_fn(next).take(size).collect();
        self.gone += batch.len();
        if self.layouts.peek().is_some_and(is_within) {
            batch.extend(self.layouts.pop());
        }
        batch
    }

    /// Number of layouts in all nodes of the queue.
    pub(super) fn size(&self) -> u64 {
        self.open.iter().chain(&self.layouts).map(|node| node.size).sum()
    }
}
