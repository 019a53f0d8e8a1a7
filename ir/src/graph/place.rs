//! Placement of tensors along the tensor-parallel axis, and the collectives that change it. Tensors routed to experts
//! are placed along the axis of expert tensor parallelism.
//!
//! The dimensions in [`DimName::is_tensor_sharded`] are sharded wherever a weight has them; everything else follows
//! from this rule. A product that sums over a sharded dimension leaves a partial sum. A product whose output has a
//! sharded dimension needs its input whole. Token-wise operators need the residual stream whole or, with sequence
//! parallelism, sharded along the sequence. Where the placement of an output differs from the one that its consumer
//! needs, a collective changes it, and the conjugate collective changes the gradient in backward. The four collectives
//! of a Megatron-LM layer are a consequence.

use std::collections::BTreeMap;

use super::block::Block;
use super::op::OpKind;
use super::placement::{Move, Placement, Placements};
use super::sharding::Sharding;
use super::switches::EmbeddingTable;
use super::tensor::{Dim, DimName, ElementType, Tensor};

impl Block {
    /// Placements of the block's tensors under a sharding.
    pub fn placements(&self, sharding: Sharding, embedding: EmbeddingTable) -> &Placements {
        // The numbers of ranks make no other difference.
        let Sharding { sequence_parallel, expert_tensor_parallel, .. } = sharding;
        let whole = [expert_tensor_parallel == 1, embedding == EmbeddingTable::Whole];
        let case = [sequence_parallel, whole[0], whole[1]];
        self.known_placements().get(case, || place(self, sharding, embedding))
    }
}

/// Computes the placement of every tensor of `block`.
fn place(block: &Block, sharding: Sharding, embedding: EmbeddingTable) -> Placements {
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
            // The partial sums that one addition reads are added first and reduced together.
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

/// Placements that an operator needs for its inputs, and the placement of its output.
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
            // A single head that is not projected separately on each rank is whole on all of them.
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
        // Every tensor-parallel rank makes the choice for its own heads; the positions of a block are contiguous.
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

/// A tensor of heads, sharded by the first of its dimensions that can be sharded.
fn by_heads(tensor: &Tensor) -> Placement {
    let sharded = tensor.dims.iter().find(|dim| dim.name.is_tensor_sharded());
    sharded.map_or(Placement::Whole, |dim| Placement::Shard(dim.name))
}

/// Partial sums are added without reduction, and reduced once.
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
