//! Memory along the order of a rank's actions.

use ir::schedule::ActionKind;
use ir::units::Bytes;

use crate::order::{Op, Order, Pair};
use crate::work::Kept;

/// The most that each rank keeps for backward at any time, with what its passes hold meanwhile.
///
/// An action takes what it takes when it begins and frees when it ends; so the order of a rank's actions
/// says what is held together, whatever takes how long.
pub fn peak_memory(order: &Order, stages: &[Kept]) -> Vec<Bytes> {
    order.ranks.iter().map(|ops| peak(ops, stages)).collect()
}

fn peak(ops: &[Op], stages: &[Kept]) -> Bytes {
    let (mut held, mut peak) = (0_u64, 0_u64);
    let mut freed_later = 0;
    for op in ops {
        let [taken, freed] = change(op, &stages[op.stage as usize]);
        held += taken;
        peak = peak.max(held);
        // Both actions of a pair have begun when the first ends.
        if op.pair == Pair::First {
            freed_later = freed;
        } else {
            held = held.saturating_sub(freed + freed_later);
            freed_later = 0;
        }
    }
    Bytes::new(peak)
}

/// What an action takes when it begins, and what it frees when it ends; in bytes.
pub(crate) fn change(op: &Op, stage: &Kept) -> [u64; 2] {
    let [activations, kept, workspace] =
        [stage.activations, stage.for_weight_grad, stage.workspace].map(Bytes::get);
    let kept = kept.min(activations);
    match op.kind {
        ActionKind::Forward => [activations, 0],
        ActionKind::Backward => [workspace, activations + workspace],
        ActionKind::InputGrad => [workspace, activations - kept + workspace],
        ActionKind::WeightGrad => [0, kept],
        _ => [0, 0],
    }
}
