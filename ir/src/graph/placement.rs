//! Placement of tensors along the tensor-parallel axis, and the collectives that change it. Tensors routed to experts
//! are placed along the axis of expert tensor parallelism.
//!
//! The rule is one sentence: the dimensions in [`DimName::is_tensor_sharded`] are sharded wherever a weight has them,
//! and everything else follows. A product that sums over a sharded dimension leaves a partial sum; a product that
//! yields one needs its input whole; token-wise operators want the residual stream, whole or, with sequence
//! parallelism, sharded along the sequence. Where the placement of an output differs from the one that its consumer
//! wants, a collective changes it, and its conjugate does so in backward. The four collectives of a Megatron-LM layer
//! are a consequence.

use std::collections::BTreeMap;

use super::block::{Block, OpId};
use super::op::OpKind;
use super::sharding::Sharding;
use super::switches::EmbeddingTable;
use super::tensor::{Dim, DimName, ElementType, Tensor};
use crate::collective::Collective;

/// Placement of a tensor along the tensor-parallel axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// Every rank has the whole tensor.
    Whole,
    /// Every rank has a shard along one dimension.
    Shard(DimName),
    /// Every rank has a partial sum of the tensor.
    Partial,
}

impl Placement {
    /// The collective that changes this placement to `to`; slicing needs no communication.
    pub fn moved_to(self, to: Self) -> Option<Collective> {
        match (self, to) {
            (Self::Partial, Self::Whole) => Some(Collective::AllReduce),
            (Self::Partial, Self::Shard(_)) => Some(Collective::ReduceScatter),
            (Self::Shard(_), Self::Whole) => Some(Collective::AllGather),
            (Self::Shard(a), Self::Shard(b)) if a != b => Some(Collective::AllToAll),
            _ => None,
        }
    }

    /// The collective that changes the gradient of a tensor in this placement back from `to`, the placement of its use:
    /// the conjugate of [`Self::moved_to`]. If the gradient is partial, each rank has a partial sum of it.
    ///
    /// The gradient of a tensor has the tensor's placement; the gradient of a partial sum is whole.
    pub fn gradient_moved_back(self, to: Self, is_partial: bool) -> Option<Collective> {
        match (self, to) {
            (Self::Whole, Self::Whole) if is_partial => Some(Collective::AllReduce),
            (Self::Shard(_), Self::Whole) if is_partial => Some(Collective::ReduceScatter),
            (Self::Partial | Self::Whole, Self::Shard(_)) => Some(Collective::AllGather),
            (Self::Shard(a), Self::Shard(b)) if a != b => Some(Collective::AllToAll),
            _ => None,
        }
    }
}

/// A change of the placement of an operator's output for its consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// The first operator that wants the new placement.
    pub(super) consumer: OpId,
    /// The collective in forward.
    pub(super) forward: Option<Collective>,
    /// True if the consumers' gradients are partial sums that must be added up.
    pub(super) partial_gradient: bool,
}

/// The placement of every tensor of a block, and the moves between them.
#[derive(Clone, Debug)]
pub struct Placements {
    /// Placement of each operator's output.
    pub outputs: Vec<Placement>,
    /// Placement that each operator wants for each of its inputs.
    pub wanted: Vec<Vec<Placement>>,
    /// For each operator and input, true if the gradient of the input is a partial sum on each rank.
    pub partial_gradients: Vec<Vec<bool>>,
    /// Moves by the operator that produces the tensor and the placement that is wanted.
    pub(super) moves: BTreeMap<(OpId, Placement), Move>,
    /// Operators that reduce over a sharded dimension: each row's statistics are all-reduced.
    pub sharded_reductions: Vec<OpId>,
}

impl Block {
    /// Placements of the block's tensors under `sharding`.
    pub fn placements(&self, sharding: Sharding) -> Placements {
        place(self, sharding, EmbeddingTable::Part)
    }
}

/// Computes the placement of every tensor of `block`.
pub(super) fn place(block: &Block, sharding: Sharding, embedding: EmbeddingTable) -> Placements {
    let num_ops = block.nodes().len();
    let mut placements = Placements {
        outputs: Vec::with_capacity(num_ops),
        wanted: Vec::with_capacity(num_ops),
        partial_gradients: Vec::with_capacity(num_ops),
        moves: BTreeMap::new(),
        sharded_reductions: Vec::new(),
    };
    for node in block.nodes() {
        let sources = block.inputs(node.id);
        let given: Vec<Placement> =
            sources.iter().map(|source| placements.outputs[source.index()]).collect();
        let tensors: Vec<&Tensor> =
            sources.iter().map(|source| &block.op(*source).output).collect();
        let is_whole =
            matches!(node.op.kind, OpKind::Embedding { .. }) && embedding == EmbeddingTable::Whole;
        let (wanted, output) = if is_whole {
            (given.clone(), Placement::Whole)
        } else {
            rule(&node.op.kind, &tensors, &given, &node.op.output, sharding)
        };
        if reduces_sharded(&node.op.kind, &wanted) {
            placements.sharded_reductions.push(node.id);
        }
        let splits_output = match output {
            Placement::Shard(name) => name != DimName::Sequence,
            Placement::Partial => true,
            Placement::Whole => false,
        };
        let is_partial = |to: &Placement| *to == Placement::Whole && splits_output;
        placements.partial_gradients.push(wanted.iter().map(is_partial).collect());
        let mut reduces_sum = false;
        for ((source, from), to) in sources.iter().zip(&given).zip(&wanted) {
            // The partial sums that one addition takes are added first and reduced together.
            let partial_addend = node.op.kind == OpKind::Add && *from == Placement::Partial;
            if partial_addend && from != to && std::mem::replace(&mut reduces_sum, true) {
                continue;
            }
            let partial_gradient = is_partial(to);
            let forward = from.moved_to(*to);
            if forward.is_none() && !partial_gradient && from == to {
                continue;
            }
            let entry = placements.moves.entry((*source, *to)).or_insert(Move {
                consumer: node.id,
                forward,
                partial_gradient,
            });
            entry.partial_gradient |= partial_gradient;
        }
        placements.wanted.push(wanted);
        placements.outputs.push(output);
    }
    placements
}

/// Placement of the residual stream between the sharded products.
pub(super) fn residual(tensor: &Tensor, sharding: Sharding) -> Placement {
    let tokens = tensor.element == ElementType::Index;
    if sharding.sequence_parallel && !tokens && tensor.dim(DimName::Sequence).is_some() {
        Placement::Shard(DimName::Sequence)
    } else {
        Placement::Whole
    }
}

/// Placement of a tensor between blocks: keys and values stay with their heads.
pub(super) fn between_blocks(tensor: &Tensor, sharding: Sharding) -> Placement {
    match tensor.dim(DimName::KvHeads) {
        Some(heads) => Placement::Shard(heads.name),
        None => residual(tensor, sharding),
    }
}

/// Placements that an operator wants for its inputs, and the placement of its output.
fn rule(
    kind: &OpKind,
    tensors: &[&Tensor],
    given: &[Placement],
    output: &Tensor,
    sharding: Sharding,
) -> (Vec<Placement>, Placement) {
    match kind {
        OpKind::Input => (Vec::new(), between_blocks(output, sharding)),
        OpKind::Embedding { entries, .. } if entries.name.is_tensor_sharded() => {
            (given.to_vec(), Placement::Partial)
        }
        OpKind::Embedding { .. } => (given.to_vec(), residual(output, sharding)),
        OpKind::GroupedLinear { .. } if sharding.expert_tensor_parallel == 1 => {
            token_wise(tensors, given, output, sharding)
        }
        OpKind::Linear { contracted, produced, .. }
        | OpKind::GroupedLinear { contracted, produced, .. } => {
            if let Some(name) = contracted.iter().find(|name| name.is_tensor_sharded()) {
                (vec![Placement::Shard(*name)], Placement::Partial)
            } else if let Some(dim) = produced.iter().find(|dim| dim.name.is_tensor_sharded()) {
                (vec![Placement::Whole], Placement::Shard(dim.name))
            } else {
                token_wise(tensors, given, output, sharding)
            }
        }
        OpKind::Gather => (vec![Placement::Whole], Placement::Whole),
        OpKind::Attention { .. } => {
            // One head that no projection makes for each rank is whole on all of them.
            let kv = |slot: usize| {
                let one = Dim::fixed(DimName::KvHeads, 1);
                let shard = Placement::Shard(DimName::KvHeads);
                let is_whole = tensors[slot].dims.contains(&one) && given[slot] != shard;
                if is_whole { Placement::Whole } else { shard }
            };
            let mut wanted = vec![Placement::Shard(DimName::Heads), kv(1), kv(2)];
            wanted.resize(tensors.len(), Placement::Whole);
            (wanted, Placement::Shard(DimName::Heads))
        }
        // Every tensor-parallel rank chooses for its heads; a block's positions are neighbours.
        OpKind::Indexer { .. } | OpKind::Compress { .. } => {
            (vec![Placement::Whole; tensors.len()], Placement::Whole)
        }
        // It reads neighbouring positions, so it is not sharded by sequence.
        OpKind::ShortConvolution { .. } => {
            let placement = by_heads(output);
            (vec![placement], placement)
        }
        OpKind::Recurrence { kind, .. } => {
            let wanted: Vec<Placement> = tensors.iter().map(|tensor| by_heads(tensor)).collect();
            let output = wanted[kind.values()];
            (wanted, output)
        }
        OpKind::AttentionScores | OpKind::AttentionValues => (
            vec![Placement::Shard(DimName::Heads), Placement::Shard(DimName::KvHeads)],
            Placement::Shard(DimName::Heads),
        ),
        OpKind::Parameter { .. } => (Vec::new(), by_heads(output)),
        OpKind::Product { over } => {
            let shared = |it: &&Placement| match it {
                Placement::Shard(name) => {
                    !over.contains(name) && tensors.iter().all(|it| it.dim(*name).is_some())
                }
                _ => false,
            };
            let placement = given.iter().find(shared).copied().unwrap_or(Placement::Whole);
            (vec![placement; 2], placement)
        }
        OpKind::Reduce { over, .. } => {
            let (wanted, placement) = token_wise(tensors, given, output, sharding);
            match wanted[0] {
                Placement::Shard(name) if over.contains(&name) => (wanted, Placement::Partial),
                _ => (wanted, placement),
            }
        }
        OpKind::Reshape { .. } => {
            let (wanted, placement) = token_wise(tensors, given, output, sharding);
            match wanted[0] {
                Placement::Shard(name) if tensors[0].dim(name) != output.dim(name) => {
                    match groups_of(tensors[0], output) {
                        Some([heads, groups]) if heads == name => {
                            (wanted, Placement::Shard(groups))
                        }
                        _ => (vec![Placement::Whole], Placement::Whole),
                    }
                }
                _ => (wanted, placement),
            }
        }
        OpKind::Add if given.contains(&Placement::Partial) => {
            add_partial_sums(tensors, given, output, sharding)
        }
        OpKind::Combine if given == [Placement::Partial, Placement::Whole] => {
            (given.to_vec(), Placement::Partial)
        }
        _ => token_wise(tensors, given, output, sharding),
    }
}

/// Names of the heads of a tensor and of the groups that a view gathers them in: a shard of the one is then a shard of
/// the other.
fn groups_of(input: &Tensor, output: &Tensor) -> Option<[DimName; 2]> {
    let position = input.dims.iter().zip(&output.dims).position(|(of, to)| of != to)?;
    let [heads, groups] = [input, output].map(|tensor| tensor.dims[position]);
    let divides = heads.extent.fixed()?.is_multiple_of(groups.extent.fixed()?);
    (divides && groups.name.is_tensor_sharded()).then_some([heads.name, groups.name])
}

/// A tensor of heads, sharded by the first of its dimensions that is.
fn by_heads(tensor: &Tensor) -> Placement {
    let sharded = tensor.dims.iter().find(|dim| dim.name.is_tensor_sharded());
    sharded.map_or(Placement::Whole, |dim| Placement::Shard(dim.name))
}

/// Partial sums are added as they are, and reduced once.
fn add_partial_sums(
    tensors: &[&Tensor],
    given: &[Placement],
    output: &Tensor,
    sharding: Sharding,
) -> (Vec<Placement>, Placement) {
    if given.iter().all(|placement| *placement == Placement::Partial) {
        return (given.to_vec(), Placement::Partial);
    }
    let wanted = tensors.iter().map(|tensor| residual(tensor, sharding)).collect();
    (wanted, residual(output, sharding))
}

/// Placements for operators that treat every token, head or inner feature alike.
fn token_wise(
    tensors: &[&Tensor],
    given: &[Placement],
    output: &Tensor,
    sharding: Sharding,
) -> (Vec<Placement>, Placement) {
    let sharded = given.iter().find_map(|placement| match placement {
        Placement::Shard(name) if *name != DimName::Sequence => Some(*name),
        _ => None,
    });
    let Some(name) = sharded else {
        let wanted = tensors.iter().map(|tensor| residual(tensor, sharding)).collect();
        return (wanted, residual(output, sharding));
    };
    let wanted = tensors
        .iter()
        .map(|tensor| match tensor.dim(name) {
            Some(_) => Placement::Shard(name),
            None => Placement::Whole,
        })
        .collect();
    let output = if output.dim(name).is_some() { Placement::Shard(name) } else { Placement::Whole };
    (wanted, output)
}

/// Returns whether the operator reduces over the dimension along which its input is sharded.
fn reduces_sharded(kind: &OpKind, wanted: &[Placement]) -> bool {
    let over = match kind {
        OpKind::Norm { over, .. } => over.as_slice(),
        OpKind::Softmax { over } | OpKind::CrossEntropy { over, .. } => std::slice::from_ref(over),
        _ => return false,
    };
    matches!(wanted.first(), Some(Placement::Shard(name)) if over.contains(name))
}
