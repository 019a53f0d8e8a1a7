//! The chain of blocks, indexed.

use std::ops::Range;

use ir::graph::{BlockRecompute, OpKind, Recompute};

use crate::partition::prefix_sums;
use crate::problem::Problem;

/// The chain of blocks, indexed for sums over ranges.
#[derive(Clone, Debug)]
pub struct ChainIndex {
    classes: Vec<usize>,
    /// For each class, the number of its blocks among the first `i`.
    counts: Vec<Vec<u32>>,
    /// Number of layers, which may be recomputed, among the first `i` blocks.
    layers: Vec<u32>,
    /// Classes whose blocks have experts.
    has_experts: Vec<bool>,
    /// Classes whose blocks have attention.
    has_attention: Vec<bool>,
    /// Blocks whose parameters are tied, each with the block to which they are tied.
    pub(super) ties: Vec<(usize, usize)>,
}

impl ChainIndex {
    /// Indexes the chain of the problem's graph.
    pub fn new(problem: &Problem) -> Self {
        let graph = &problem.graph;
        let classes: Vec<usize> = graph.blocks().map(|class| class.0).collect();
        let count = |class| prefix_sums(classes.iter().map(|other| u32::from(*other == class)));
        let counts = (0..graph.classes().len()).map(count).collect();
        let mut ties = Vec::new();
        for (target, users) in graph.ties() {
            let position = |name: &str| {
                classes.iter().position(|class| {
                    let block = graph.class(ir::graph::ClassId(*class));
                    block.nodes().any(|node| node.op.name == name)
                })
            };
            let Some(home) = position(&target) else { continue };
            ties.extend(users.iter().filter_map(|user| Some((position(user)?, home))));
        }
        let has_experts = graph.classes().map(|(_, block)| block.has_experts()).collect();
        let attention = graph.classes().map(|(_, block)| {
            let mut kinds = block.nodes().map(|node| &node.op.kind);
            kinds.any(|kind| {
                matches!(
                    kind,
                    OpKind::Attention { .. } | OpKind::AttentionScores | OpKind::AttentionValues
                )
            })
        });
        let has_attention = attention.collect();
        let chain = Self { classes, counts, layers: Vec::new(), has_experts, has_attention, ties };
        let layers = chain.classes.iter().map(|class| u32::from(!chain.is_end(*class)));
        Self { layers: prefix_sums(layers), ..chain }
    }

    /// Number of blocks in the chain.
    pub fn num_blocks(&self) -> usize {
        self.classes.len()
    }

    /// The class of the block at a position.
    pub fn class_at(&self, position: usize) -> usize {
        self.classes[position]
    }

    pub(super) fn last_class(&self) -> usize {
        self.classes[self.classes.len() - 1]
    }

    /// True for classes that are first or last in the chain. Those are never recomputed, as frameworks recompute layers
    /// only: the embedding saves nothing but tokens, and the backward of head and loss follows their forward at once.
    pub fn is_end(&self, class: usize) -> bool {
        class == self.classes[0] || class == self.last_class()
    }

    /// True if blocks of a class have experts.
    pub fn has_experts(&self, class: usize) -> bool {
        self.has_experts[class]
    }

    /// The blocks of a stage by recompute policy. Where only the first layers are recomputed, these come first, then
    /// the rest.
    pub fn by_policy(
        &self,
        recompute: Recompute,
        range: Range<usize>,
    ) -> impl Iterator<Item = (BlockRecompute, Range<usize>)> + use<> {
        let end = match recompute.first_layers() {
            None => range.end,
            Some(count) => {
                let until = self.layers[range.start].saturating_add(count);
                self.layers.partition_point(|layers| *layers < until).clamp(range.start, range.end)
            }
        };
        let first = (recompute.of_first_layers(), range.start..end);
        let rest = (recompute.of_other_layers(), end..range.end);
        [first, rest].into_iter().filter(|(_, range)| !range.is_empty())
    }

    /// True if blocks of a class have attention.
    pub(super) fn has_attention(&self, class: usize) -> bool {
        self.has_attention[class]
    }

    /// Number of layers in a range.
    pub fn num_layers(&self, range: &Range<usize>) -> u32 {
        self.layers[range.end] - self.layers[range.start]
    }

    /// Number of blocks of a class in a range.
    pub fn count(&self, class: usize, range: &Range<usize>) -> u32 {
        self.counts[class][range.end] - self.counts[class][range.start]
    }
}
