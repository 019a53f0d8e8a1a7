//! A block whose tensors have been placed: sizes on one rank.

use super::block::{Block, OpId};
use super::op::{OpKind, Parameter};
use super::placement::{Placement, Placements};
use super::tensor::{Dim, DimName, Element, Extent, Tensor};
use super::work::Setting;
use crate::units::Bytes;

/// A block with its tensors placed.
pub(super) struct Sharded<'a> {
    pub(super) block: &'a Block,
    pub(super) placements: Placements,
    pub(super) setting: Setting,
}

impl Sharded<'_> {
    /// The extent of a dimension on one rank, of a tensor that lies at `placement`.
    pub(super) fn local_extent(&self, dim: Dim, placement: Placement) -> u64 {
        let sharding = &self.setting.sharding;
        let mut extent = dim.extent.resolve(self.setting.sizes);
        if dim.name == DimName::Sequence {
            extent = extent.div_ceil(sharding.context_parallel.into());
        }
        if placement == Placement::Shard(dim.name) {
            extent = extent.div_ceil(sharding.tensor_parallel.into());
        }
        extent
    }

    /// Elements of `tensor` on one rank.
    pub(super) fn elements(&self, tensor: &Tensor, placement: Placement) -> u64 {
        tensor.dims.iter().map(|dim| self.local_extent(*dim, placement)).product()
    }

    /// Bytes of what `op` puts out, on one rank.
    pub(super) fn bytes(&self, op: OpId, placement: Placement) -> Bytes {
        let tensor = &self.block.op(op).output;
        let element = tensor.element.bytes(self.setting.compute_bytes);
        Bytes::new(self.elements(tensor, placement) * element)
    }

    /// Bytes of what `op` puts out, where it puts it.
    pub(super) fn output_bytes(&self, op: OpId) -> Bytes {
        self.bytes(op, self.placements.outputs[op.index()])
    }

    /// Bytes of an input of `op`, where `op` wants it.
    pub(super) fn input_bytes(&self, op: OpId, slot: usize) -> Bytes {
        let source = self.block.inputs(op)[slot];
        self.bytes(source, self.placements.wanted[op.index()][slot])
    }

    /// Elements of a parameter on one rank.
    pub(super) fn parameter_elements(&self, parameter: &Parameter, is_expert: bool) -> u64 {
        let sharding = &self.setting.sharding;
        let cut = parameter.cut(is_expert);
        let tensor =
            if is_expert { sharding.expert_tensor_parallel } else { sharding.tensor_parallel };
        let sizes = parameter.dims.iter().enumerate().map(|(dim, size)| {
            let Extent::Fixed(size) = size.extent else { return 1 };
            if cut.expert == Some(dim) {
                size.div_ceil(sharding.expert_parallel.into())
            } else if cut.tensor == Some(dim) {
                size.div_ceil(tensor.into())
            } else {
                size
            }
        });
        sizes.product()
    }

    /// For each operator, whether a gradient of its output is needed.
    pub(super) fn requires_grad(&self) -> Vec<bool> {
        let mut required: Vec<bool> = Vec::with_capacity(self.block.nodes().len());
        for node in self.block.nodes() {
            let from_inputs = self.block.inputs(node.id).iter().any(|id| required[id.index()]);
            let given = node.op.kind == OpKind::Input
                && node.op.output.element != Element::Index
                && !self.setting.takes_data;
            required.push(given || from_inputs || !node.op.parameters.is_empty());
        }
        required
    }

    /// Rows whose statistics an operator takes: elements of its input over those reduced.
    pub(super) fn row_count(&self, op: OpId) -> u64 {
        let source = self.block.inputs(op)[0];
        let placement = self.placements.wanted[op.index()][0];
        let reduced = |name: DimName| match &self.block.op(op).kind {
            OpKind::Norm { over, .. } => over.contains(&name),
            OpKind::Softmax { over } | OpKind::CrossEntropy { over } => *over == name,
            OpKind::Attention { .. } => name == DimName::HeadDim,
            _ => false,
        };
        let tensor = &self.block.op(source).output;
        let kept = tensor.dims.iter().filter(|dim| !reduced(dim.name));
        kept.map(|dim| self.local_extent(*dim, placement)).product()
    }
}
