//! Sizes, on one rank, of a block whose tensors have placements.

use super::block::{Block, OpId};
use super::op::{Op, OpKind};
use super::parameter::{Cut, Parameter};
use super::placement::{Placement, Placements};
use super::switches::EmbeddingTable;
use super::tensor::{Dim, DimName, Extent, Tensor};
use super::weights::WeightFormat;
use super::work::ShardContext;
use crate::units::Bytes;

/// A block with the placements of its tensors.
pub(super) struct Sharded<'a> {
    pub(super) block: &'a Block,
    pub(super) placements: &'a Placements,
    pub(super) setting: ShardContext,
}

/// Sizes of a recurrence on one rank.
pub(super) struct RecurrenceShape {
    /// Positions of all sequences.
    pub(super) tokens: u64,
    /// Heads of values.
    pub(super) heads: u64,
    /// Heads of keys, or groups that share `B` and `C`.
    pub(super) groups: u64,
    /// Features of a head's values.
    pub(super) features: u64,
    /// Features of a key, or state entries for each feature.
    pub(super) state: u64,
}

impl Sharded<'_> {
    /// The extent of a dimension of `tensor` on one rank, under `placement`.
    pub(super) fn local_extent(&self, tensor: &Tensor, dim: Dim, placement: Placement) -> u64 {
        self.local_extent_of(tensor.is_routed(), dim, placement)
    }

    /// The extent on one rank of a dimension of a tensor, which is routed to experts or not.
    fn local_extent_of(&self, is_routed: bool, dim: Dim, placement: Placement) -> u64 {
        let sharding = &self.setting.sharding;
        let mut extent = self.padded(dim);
        // Tensors routed to experts are whole on the ranks that share each expert.
        let (groups, ranks) = if is_routed {
            (sharding.expert_groups(), sharding.expert_tensor_parallel)
        } else {
            (1, sharding.tensor_parallel)
        };
        if dim.name == DimName::Sequence {
            extent = extent.div_ceil((sharding.context_parallel * groups).into());
        }
        if placement == Placement::Shard(dim.name) {
            extent = extent.div_ceil(ranks.into());
        }
        if is_routed && dim.name == DimName::Sequence {
            extent = extent.saturating_mul(self.setting.routed.busiest).div_ceil(1000);
        }
        extent
    }

    /// The extent of a dimension over all ranks. A vocabulary is padded, so that the shard of each tensor-parallel
    /// rank is a multiple of the framework's number.
    fn padded(&self, dim: Dim) -> u64 {
        let extent = dim.extent.resolve(self.setting.sizes);
        if dim.name != DimName::Vocabulary || self.setting.vocabulary_multiple < 2 {
            return extent;
        }
        let ShardContext { sharding, vocabulary_multiple, .. } = self.setting;
        extent
            .next_multiple_of(u64::from(vocabulary_multiple) * u64::from(sharding.tensor_parallel))
    }

    /// Elements of `tensor` on one rank.
    pub(super) fn elements(&self, tensor: &Tensor, placement: Placement) -> u64 {
        let is_routed = tensor.is_routed();
        tensor.dims.iter().map(|dim| self.local_extent_of(is_routed, *dim, placement)).product()
    }

    /// Bytes of the output of `op` on one rank, under `placement`.
    pub(super) fn bytes(&self, op: OpId, placement: Placement) -> Bytes {
        let tensor = &self.block.op(op).output;
        let element = tensor.element.bytes(self.setting.compute_bytes);
        Bytes::new(self.elements(tensor, placement) * element)
    }

    /// Bytes of the output of `op` on one rank, in the placement that `op` produces.
    pub(super) fn output_bytes(&self, op: OpId) -> Bytes {
        self.bytes(op, self.placements.outputs[op.index()])
    }

    /// Elements of the output of `op` on one rank, in the placement that `op` produces.
    pub(super) fn output_elements(&self, op: OpId) -> u64 {
        self.elements(&self.block.op(op).output, self.placements.outputs[op.index()])
    }

    /// An input of `op`, with the placement that `op` needs.
    pub(super) fn input(&self, op: OpId, slot: usize) -> (&Tensor, Placement) {
        let source = self.block.inputs(op)[slot];
        (&self.block.op(source).output, self.placements.wanted[op.index()][slot])
    }

    /// Elements of an input of `op` along the dimensions that `meant` selects, in the placement that `op` needs.
    pub(super) fn input_extent(
        &self,
        op: OpId,
        slot: usize,
        meant: impl Fn(DimName) -> bool,
    ) -> u64 {
        let (tensor, placement) = self.input(op, slot);
        let dims = tensor.dims.iter().filter(|dim| meant(dim.name));
        dims.map(|dim| self.local_extent(tensor, *dim, placement)).product()
    }

    /// Bytes of an input of `op` on one rank, in the placement that `op` needs.
    pub(super) fn input_bytes(&self, op: OpId, slot: usize) -> Bytes {
        let source = self.block.inputs(op)[slot];
        self.bytes(source, self.placements.wanted[op.index()][slot])
    }

    /// True for a trained tensor and for parts of it: these are in memory in any case.
    pub(super) fn is_weight(&self, op: OpId) -> bool {
        match self.block.op(op).kind {
            OpKind::Parameter { .. } => true,
            OpKind::Slice { .. } | OpKind::Reshape { .. } => {
                self.is_weight(self.block.inputs(op)[0])
            }
            _ => false,
        }
    }

    /// The dimensions along which a parameter is sharded.
    pub(super) fn cut(&self, op: &Op, parameter: &Parameter) -> Cut {
        let cut = parameter.cut(matches!(op.kind, OpKind::GroupedLinear { .. }));
        let is_whole = matches!(op.kind, OpKind::Embedding { .. })
            && self.setting.embedding == EmbeddingTable::Whole;
        if is_whole { Cut { tensor: None, ..cut } } else { cut }
    }

    /// Elements of a parameter on one rank.
    pub(super) fn parameter_elements(&self, op: &Op, parameter: &Parameter) -> u64 {
        self.parameter_sizes(op, parameter).product()
    }

    /// Sizes of a parameter's dimensions on one rank.
    pub(super) fn parameter_sizes<'a>(
        &'a self,
        op: &Op,
        parameter: &'a Parameter,
    ) -> impl Iterator<Item = u64> + 'a {
        let sharding = &self.setting.sharding;
        let is_expert = matches!(op.kind, OpKind::GroupedLinear { .. });
        let cut = self.cut(op, parameter);
        let tensor =
            if is_expert { sharding.expert_tensor_parallel } else { sharding.tensor_parallel };
        parameter.dims.iter().enumerate().map(move |(dim, size)| {
            let Extent::Fixed(_) = size.extent else { return 1 };
            let size = self.padded(*size);
            if cut.expert == Some(dim) {
                size.div_ceil(sharding.expert_parallel.into())
            } else if cut.tensor == Some(dim) {
                size.div_ceil(tensor.into())
            } else {
                size
            }
        })
    }

    /// Bytes in which a rank stores a frozen parameter.
    pub(super) fn frozen_bytes(&self, op: &Op, parameter: &Parameter) -> Bytes {
        let elements = self.parameter_elements(op, parameter);
        let cut = self.cut(op, parameter);
        // A row is the dimensions that no layout shards.
        let row = parameter.dims.iter().enumerate().map(|(dim, size)| match size.extent {
            Extent::Fixed(size) if cut.expert != Some(dim) && cut.tensor != Some(dim) => size,
            _ => 1,
        });
        let row: u64 = row.product();
        op.format(parameter).bytes(elements / row.max(1), row, self.setting.compute_bytes)
    }

    /// Bytes in which a rank stores the weight of `op`, if it is quantised; else zero.
    pub(super) fn quantised_bytes(&self, op: OpId) -> Bytes {
        let op = self.block.op(op);
        let quantised = op.parameters.iter().filter(|it| op.format(it) != WeightFormat::Plain);
        quantised.map(|parameter| self.frozen_bytes(op, parameter)).sum()
    }

    /// Bytes of the quantised weight of `op` once it is dequantised, as products read it.
    pub(super) fn dequantised_bytes(&self, op: OpId) -> Bytes {
        let op = self.block.op(op);
        let quantised = op.parameters.iter().filter(|it| op.format(it) != WeightFormat::Plain);
        let elements = quantised.map(|parameter| self.parameter_elements(op, parameter));
        Bytes::new(elements.sum::<u64>() * self.setting.compute_bytes)
    }

    /// Sizes of a recurrence on one rank.
    pub(super) fn recurrence_shape(&self, op: OpId) -> RecurrenceShape {
        // Extents of a tensor's dimensions after batch and sequence.
        let sizes = |slot: usize| -> Vec<u64> {
            let (tensor, placement) = self.input(op, slot);
            let dims = tensor.dims.iter().skip(2);
            dims.map(|dim| self.local_extent(tensor, *dim, placement)).collect()
        };
        let (values, keys) = match self.block.op(op).kind {
            OpKind::Recurrence { kind, .. } => (sizes(kind.values()), sizes(1)),
            _ => unreachable!("asked of recurrences"),
        };
        let (tensor, placement) = self.input(op, 0);
        let tokens =
            tensor.dims.iter().take(2).map(|dim| self.local_extent(tensor, *dim, placement));
        let (features, heads) = values.split_last().expect("values have features");
        let (state, groups) = keys.split_last().expect("keys have features");
        RecurrenceShape {
            tokens: tokens.product(),
            heads: heads.iter().product(),
            groups: groups.iter().product(),
            features: *features,
            state: *state,
        }
    }

    /// Number of rows over which an operator takes statistics: elements of its input over those reduced.
    pub(super) fn row_count(&self, op: OpId) -> u64 {
        let reduced = |name: DimName| match &self.block.op(op).kind {
            OpKind::Norm { over, .. } => over.contains(&name),
            OpKind::Softmax { over } | OpKind::CrossEntropy { over, .. } => *over == name,
            OpKind::Attention { .. } => name == DimName::HeadDim,
            _ => false,
        };
        self.input_extent(op, 0, |name| !reduced(name))
    }
}
