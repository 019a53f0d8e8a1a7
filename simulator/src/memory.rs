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
    let changes: Vec<[[u64; 2]; 4]> =
        stages.iter().map(|kept| PASSES.map(|it| change(it, kept))).collect();
    order.ranks.iter().map(|ops| peak(ops, &changes)).collect()
}

/// The kinds of actions that take and free memory, in the order of their numbers.
const PASSES: [ActionKind; 4] =
    [ActionKind::Forward, ActionKind::Backward, ActionKind::InputGrad, ActionKind::WeightGrad];

fn peak(ops: &[Op], changes: &[[[u64; 2]; 4]]) -> Bytes {
    let (mut held, mut peak) = (0_u64, 0_u64);
    let mut freed_later = 0;
    for op in ops {
        let Some([taken, freed]) = changes[op.stage as usize].get(op.kind as usize) else {
            continue;
        };
        held += taken;
        peak = peak.max(held);
        // Both actions of a pair have begun when the first ends.
        if op.pair == Pair::First {
            freed_later = *freed;
        } else {
            held = held.saturating_sub(freed + freed_later);
            freed_later = 0;
        }
    }
    Bytes::new(peak)
}

/// What an action takes when it begins, and what it frees when it ends; in bytes.
pub(crate) fn change(kind: ActionKind, stage: &Kept) -> [u64; 2] {
    let [activations, kept, workspace] =
        [stage.activations, stage.for_weight_grad, stage.workspace].map(Bytes::get);
    let kept = kept.min(activations);
    match kind {
        ActionKind::Forward => [activations, 0],
        ActionKind::Backward => [workspace, activations + workspace],
        ActionKind::InputGrad => [workspace, activations - kept + workspace],
        ActionKind::WeightGrad => [0, kept],
        _ => [0, 0],
    }
}
