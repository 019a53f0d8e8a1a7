//! Memory of the gradients of activations within a block's backward.

use std::collections::BTreeMap;

use super::block::OpId;
use super::loss::LossGradient;
use super::op::OpKind;
use super::sharded::Sharded;
use super::work::Saved;
use crate::units::Bytes;

/// A gradient of an operator's input.
struct MadeGradient {
    of: OpId,
    /// Memory that is taken for it, in the placement in which the operator reads the input.
    made: Bytes,
    /// Memory that it has from then on.
    kept: Bytes,
}

impl Sharded<'_> {
    /// The most memory that gradients of activations take in backward, less what backward has freed by then of what
    /// forward saved.
    ///
    /// Backward runs the operators in reverse. Each has the gradient of its output, makes those of its inputs, and frees
    /// the former with what it alone still needed; a gradient that is a sum exists once.
    pub(super) fn most_gradients(&self, requires_grad: &[bool], saved: &[Saved]) -> Bytes {
        let mut freed_by: BTreeMap<OpId, Bytes> = BTreeMap::new();
        for it in saved.iter().filter(|it| !it.is_start) {
            *freed_by.entry(it.until).or_default() += it.bytes;
        }
        let outputs = self.block.outputs().iter();
        let mut live: BTreeMap<OpId, Bytes> = outputs
            .filter(|op| !self.is_loss(**op))
            .map(|op| (*op, self.output_bytes(*op)))
            .collect();
        let (mut freed, mut most) = (Bytes::ZERO, Bytes::ZERO);
        let nodes: Vec<OpId> = self.block.nodes().map(|node| node.id).collect();
        for id in nodes.into_iter().rev() {
            let own = live.get(&id).copied();
            if own.is_some() || self.is_loss(id) {
                let made = self.made_gradients(id, requires_grad);
                let made_now: Bytes = made.iter().map(|it| it.made).sum();
                let total = live.values().copied().sum::<Bytes>() + made_now + self.loss_copies(id);
                most = most.max(total.saturating_sub(freed));
                live.remove(&id);
                let is_view = self.passes_on(id);
                for (index, it) in made.iter().enumerate() {
                    // The first of several views stands for the memory.
                    let kept = match (is_view, index) {
                        (true, 0) => own.unwrap_or_default(),
                        (true, _) => Bytes::ZERO,
                        _ => it.kept,
                    };
                    let entry = live.entry(it.of).or_default();
                    *entry = (*entry).max(kept);
                }
            }
            freed += freed_by.get(&id).copied().unwrap_or_default();
        }
        most
    }

    /// Gradients that the backward of an operator makes, of those inputs that need one.
    fn made_gradients(&self, id: OpId, requires_grad: &[bool]) -> Vec<MadeGradient> {
        let is_written_over =
            self.passes_on(id) || (self.is_loss(id) && self.setting.loss == LossGradient::InPlace);
        let sources = self.block.inputs(id).iter().enumerate();
        let needed = sources.filter(|(_, source)| requires_grad[source.index()]);
        needed
            .map(|(slot, source)| {
                let bytes = self.input_bytes(id, slot);
                let pieces = if self.is_loss(id) { self.setting.loss.pieces() } else { 1 };
                let bytes = bytes.shard(pieces);
                MadeGradient {
                    of: *source,
                    made: if is_written_over { Bytes::ZERO } else { bytes },
                    kept: bytes.min(self.output_bytes(*source)),
                }
            })
            .collect()
    }

    /// Memory of the loss in addition to its gradient; in pieces also the gradient of the head's input in fp32.
    fn loss_copies(&self, id: OpId) -> Bytes {
        if !self.is_loss(id) {
            return Bytes::ZERO;
        }
        let (compute_bytes, loss) = (self.setting.compute_bytes, self.setting.loss);
        let logits = self.input_bytes(id, 0).get() / compute_bytes;
        let copies = Bytes::new(loss.copied_bytes(compute_bytes) * logits).shard(loss.pieces());
        let head = self.block.inputs(id)[0];
        let gathered = match (loss.pieces(), self.block.inputs(head)) {
            (2.., [_, ..]) => Bytes::new(4 * self.input_bytes(head, 0).get() / compute_bytes),
            _ => Bytes::ZERO,
        };
        copies + gathered
    }

    fn is_loss(&self, id: OpId) -> bool {
        matches!(self.block.op(id).kind, OpKind::CrossEntropy { .. })
    }

    /// True if the gradients of an operator's inputs are that of its output, or parts of it.
    fn passes_on(&self, id: OpId) -> bool {
        matches!(
            self.block.op(id).kind,
            OpKind::Add
                | OpKind::Slice { .. }
                | OpKind::Concat { .. }
                | OpKind::Flatten
                | OpKind::PatchesToSequence
                | OpKind::AddParameter { .. }
        )
    }
}
