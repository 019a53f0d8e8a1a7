//! Memory of activation gradients within a block's backward.

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
    /// Memory allocated for the gradient, in the placement in which the operator reads the input.
    made: Bytes,
    /// Memory that it has from then on.
    kept: Bytes,
}

impl Sharded<'_> {
    /// Peak memory of activation gradients in backward, less what backward has freed by then of the tensors that
    /// forward saved.
    ///
    /// Backward runs the operators in reverse. Each operator has the gradient of its output and computes those of its
    /// inputs; it then frees the former, and the saved tensors that it alone still needed. A gradient that is a sum
    /// exists once.
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
                    // Several views of one tensor share its memory, which is counted for the first view.
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

    /// Gradients that the backward of an operator computes: those of the inputs that need one.
    fn made_gradients(&self, id: OpId, requires_grad: &[bool]) -> Vec<MadeGradient> {
        let is_in_place =
            matches!(self.setting.loss.gradient, LossGradient::InPlace | LossGradient::WithHead);
        let is_written_over = self.passes_on(id) || (self.is_loss(id) && is_in_place);
        let chunks = if self.is_loss(id) { self.loss_chunks(id) } else { 1 };
        let sources = self.block.inputs(id).iter().enumerate();
        let needed = sources.filter(|(_, source)| requires_grad[source.index()]);
        needed
            .map(|(slot, source)| {
                let bytes = self.input_bytes(id, slot).shard(chunks);
                MadeGradient {
                    of: *source,
                    made: if is_written_over { Bytes::ZERO } else { bytes },
                    kept: bytes.min(self.output_bytes(*source)),
                }
            })
            .collect()
    }

    /// Memory of the loss in addition to its gradient; for `chunked`, also the gradient of the head's input in fp32.
    fn loss_copies(&self, id: OpId) -> Bytes {
        if !self.is_loss(id) {
            return Bytes::ZERO;
        }
        let (compute_bytes, gradient) = (self.setting.compute_bytes, self.setting.loss.gradient);
        let logits = self.input_bytes(id, 0).get() / compute_bytes;
        let is_shared = self.setting.sharding.tensor_parallel > 1;
        let copies = Bytes::new(gradient.copied_bytes(compute_bytes, is_shared) * logits);
        let gathered = match (gradient, self.inputs_of_head(id)) {
            (LossGradient::Chunked, Some(inputs)) => Bytes::new(4 * inputs),
            _ => Bytes::ZERO,
        };
        copies.shard(self.loss_chunks(id)) + gathered
    }

    /// Elements of the input of the head whose logits a loss reads; `None` without a head.
    fn inputs_of_head(&self, loss: OpId) -> Option<u64> {
        let head = self.block.inputs(loss)[0];
        let has_inputs = !self.block.inputs(head).is_empty();
        has_inputs.then(|| self.input_bytes(head, 0).get() / self.setting.compute_bytes)
    }

    /// The head that is computed in chunks with the loss, and their number.
    pub(super) fn head_chunks(&self) -> Option<(OpId, u64)> {
        let loss = self.block.nodes().map(|node| node.id).find(|id| self.is_loss(*id))?;
        self.inputs_of_head(loss)?;
        let chunks = self.loss_chunks(loss);
        (chunks > 1).then(|| (self.block.inputs(loss)[0], chunks))
    }

    /// Number of chunks in which a loss and its head are computed.
    fn loss_chunks(&self, loss: OpId) -> u64 {
        let logits = self.input_bytes(loss, 0).get() / self.setting.compute_bytes;
        let sizes = self.setting.sizes;
        let tokens = (sizes.micro_batch_size * sizes.sequence_length)
            / u64::from(self.setting.sharding.context_parallel);
        let inputs = self.inputs_of_head(loss).unwrap_or(logits);
        let of_token = |elements: u64| elements.div_ceil(tokens.max(1));
        self.setting.loss.num_chunks(tokens, of_token(inputs), of_token(logits))
    }

    fn is_loss(&self, id: OpId) -> bool {
        matches!(self.block.op(id).kind, OpKind::CrossEntropy { .. })
    }

    /// True if the gradients of an operator's inputs are the gradient of its output, or parts of it.
    fn passes_on(&self, id: OpId) -> bool {
        matches!(
            self.block.op(id).kind,
            OpKind::Add
                | OpKind::Slice { .. }
                | OpKind::Concat { .. }
                | OpKind::Flatten
                | OpKind::Reshape { .. }
                | OpKind::PatchesToSequence
                | OpKind::AddParameter { .. }
        )
    }
}
