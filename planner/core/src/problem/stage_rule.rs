//! Partitions that are not free: stages given by hand, and those of a framework's own rule.

use std::sync::Arc;

use ir::framework::StageLayers;
use ir::graph::{Block, DimName, Extent, Graph, OpKind};
use ir::layout::PartialLayout;

use super::{GivenStages, Problem};
use crate::partition::{filled, prefix_sums};

/// The rule that partitions the chain of blocks into stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageRule {
    /// The search chooses the partition.
    Free,
    /// Ends of the stages, given by hand or by the framework's rule.
    Fixed(Arc<[usize]>),
    /// The framework cannot partition this chain into that number of stages.
    Impossible,
}

impl Problem {
    /// The rule for `virtual_stages` stages on each of `ranks` pipeline ranks.
    pub fn stage_rule(&self, ranks: u32, virtual_stages: u32) -> StageRule {
        let num_stages = ranks * virtual_stages;
        match &self.stages {
            Some(given) if given.num_stages() == num_stages => {
                StageRule::Fixed(Arc::clone(given.ends()))
            }
            _ => self.stage_rule_of_framework(ranks, virtual_stages),
        }
    }

    /// The rule where stages are not given by hand.
    pub fn stage_rule_of_framework(&self, ranks: u32, virtual_stages: u32) -> StageRule {
        let (num_blocks, num_stages) = (self.graph.num_blocks() as u32, ranks * virtual_stages);
        let blocks = match self.hardware.framework.abilities.stage_layers {
            StageLayers::Any => return StageRule::Free,
            StageLayers::Filled => filled(&costs(&self.graph), num_stages),
            layers => even(num_blocks, ranks, virtual_stages, layers),
        };
        let Some(blocks) = blocks else { return StageRule::Impossible };
        let ends = prefix_sums(blocks.into_iter().map(|count| count as usize));
        StageRule::Fixed(ends[1..].into())
    }
}

impl Problem {
    /// Reason why the framework cannot run the stages given by hand, or the named number of stages.
    pub(super) fn unsupported_stages(&self, named: &PartialLayout) -> Option<String> {
        let ranks = named.pipeline_parallel.one().filter(|ranks| *ranks > 1)?;
        let layers = self.limits.num_blocks.saturating_sub(2);
        let how = match self.hardware.framework.abilities.stage_layers {
            StageLayers::Any => return None,
            StageLayers::Even => "it has as many on each",
            StageLayers::MoreOnFirst => "it has as many on each, and what is left on the first",
            StageLayers::MoreOnLast => "it has as many on each, and what is left on the last",
            StageLayers::Filled => "it cuts by a rule of its own",
        };
        // Stages that do not divide over the ranks are refused elsewhere.
        let divides = |it: &GivenStages| it.num_stages().is_multiple_of(ranks);
        if let Some(given) = &self.stages {
            if !divides(given) {
                return None;
            }
            let own = self.stage_rule_of_framework(ranks, given.num_stages() / ranks);
            let is_own = own == StageRule::Fixed(Arc::clone(given.ends()));
            return (!is_own).then(|| format!("stages of {given} ({how})"));
        }
        let most = (self.limits.num_blocks / u64::from(ranks)) as u32;
        let mut tried = named.virtual_stages.one().map_or(1..=most, |stages| stages..=stages);
        let cuts = |stages| self.stage_rule(ranks, stages) != StageRule::Impossible;
        let stages = ranks * named.virtual_stages.unwrap_or(1);
        (!tried.any(cuts)).then(|| {
            format!("pipeline of {stages} stages: {layers} layers do not divide by them ({how})")
        })
    }
}

/// Number of blocks of each stage, where all ranks have the same number of layers, except for a remainder. The rule
/// gives the remainder to the first ranks, to the last ranks or to none. With several stages per rank, this is so in
/// each round. The embedding, first in the chain, and the head, last, are added. `None` where the layers do not
/// divide, or a stage would have none.
fn even(num_blocks: u32, ranks: u32, rounds: u32, rule: StageLayers) -> Option<Vec<u32>> {
    let layers = num_blocks.checked_sub(2)?;
    let of_round = layers.is_multiple_of(rounds).then(|| layers / rounds)?;
    let left = of_round % ranks;
    if left > 0 && rule == StageLayers::Even {
        return None;
    }
    let num_stages = ranks * rounds;
    let of_stage = |stage: u32| {
        let rank = stage % ranks;
        let has_more = match rule {
            StageLayers::MoreOnFirst => rank < left,
            StageLayers::MoreOnLast => rank >= ranks - left,
            _ => false,
        };
        let ends = u32::from(stage == 0) + u32::from(stage + 1 == num_stages);
        of_round / ranks + u32::from(has_more) + ends
    };
    let blocks: Vec<u32> = (0..num_stages).map(of_stage).collect();
    blocks.iter().all(|count| *count > 0).then_some(blocks)
}

/// Costs of blocks by nanotron's rule: the numbers of weights in their matrix products, with as many key-value heads as
/// attention heads; zero for an embedding.
///
/// # Source
///
/// `get_block_compute_costs` of `nanotron/models/llama.py`, nanotron 0.4.
fn costs(graph: &Graph) -> Vec<u64> {
    graph.blocks().map(|class| cost(graph.class(class))).collect()
}

fn cost(block: &Block) -> u64 {
    let products = block.nodes().filter(|it| matches!(it.op.kind, OpKind::Linear { .. }));
    let weights = products.flat_map(|it| &it.op.parameters).filter(|it| it.dims.len() > 1);
    let dims = || block.nodes().flat_map(|it| &it.op.parameters).flat_map(|it| &it.dims);
    let size = |extent: Extent| extent.fixed().unwrap_or(1);
    let heads = dims().find(|dim| dim.name == DimName::Heads).map(|dim| size(dim.extent));
    let counted = |name, extent| match heads {
        Some(heads) if name == DimName::KvHeads => heads,
        _ => size(extent),
    };
    weights
        .map(|weight| weight.dims.iter().map(|dim| counted(dim.name, dim.extent)).product::<u64>())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_stages_have_as_many_layers_each() {
        let even = |blocks, ranks, rounds| even(blocks, ranks, rounds, StageLayers::Even);
        assert_eq!(even(34, 4, 1), Some(vec![9, 8, 8, 9]));
        assert_eq!(even(34, 2, 2), Some(vec![9, 8, 8, 9]));
        assert_eq!(even(34, 1, 1), Some(vec![34]));
        assert_eq!(even(34, 3, 1), None);
        assert_eq!(even(2, 2, 1), Some(vec![1, 1]));
        assert_eq!(even(2, 3, 1), None);
    }

    #[test]
    fn what_is_left_comes_to_the_first_or_the_last_ranks() {
        assert_eq!(even(32, 4, 1, StageLayers::MoreOnFirst), Some(vec![9, 8, 7, 8]));
        assert_eq!(even(32, 4, 1, StageLayers::MoreOnLast), Some(vec![8, 7, 8, 9]));
        assert_eq!(even(14, 4, 2, StageLayers::MoreOnLast), Some(vec![2, 1, 2, 2, 1, 1, 2, 3]));
        assert_eq!(even(15, 4, 2, StageLayers::MoreOnLast), None);
    }
}
