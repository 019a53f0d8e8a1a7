//! Memory of a rank along the order of its actions.

use ir::schedule::{Action, ActionKind, GenerateError, ScheduleKind, ScheduleStep, generate_steps};
use ir::units::Bytes;

use crate::order::{Order, Pair, RankOp};
use crate::work::ActivationBytes;

/// The most memory that each rank holds for backward at any time, with the workspace of its passes.
///
/// An action allocates memory when it begins and frees memory when it ends; so the order of a rank's actions determines
/// the memory held together, whatever their durations.
pub fn peak_memory(order: &Order, stages: &[ActivationBytes]) -> Vec<Bytes> {
    let changes = changes(stages);
    let peak = |ops: &Vec<RankOp>| {
        let mut held = LiveMemory::default();
        for op in ops {
            held.pass(&changes, op.stage, op.kind, op.pair == Pair::First);
        }
        held.peak()
    };
    order.ranks.iter().map(peak).collect()
}

/// The passes of each rank in order, with repetitions stored once: all that memory depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassOrder {
    ranks: Vec<Vec<Repeated>>,
}

/// Steps that are repeated `times` times in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Repeated {
    steps: Vec<ScheduleStep>,
    times: u32,
}

/// Largest number of steps that are looked for as one repetition; with split gradients, a repetition has three steps.
const MOST_TOGETHER: usize = 3;

impl PassOrder {
    /// The passes of a family's schedule.
    ///
    /// # Errors
    ///
    /// A family that does not take these numbers.
    pub fn of_family(kind: ScheduleKind, p: u32, m: u32, v: u32) -> Result<Self, GenerateError> {
        let ranks = generate_steps(kind, p, m, v)?;
        Ok(Self { ranks: ranks.into_iter().map(repeated).collect() })
    }

    /// Peak memory, the same as [`peak_memory`] of the whole order.
    pub fn peak_memory(&self, stages: &[ActivationBytes]) -> Vec<Bytes> {
        let changes = changes(stages);
        let peak = |runs: &Vec<Repeated>| {
            let mut held = LiveMemory::default();
            for Repeated { steps, times } in runs {
                let before = held.now;
                held.steps(&changes, steps);
                // Each repetition adds as much as the first, so the peak is in the first or in the last.
                let skipped = i128::from(times.saturating_sub(2));
                held.now += (held.now - before) * skipped;
                if *times > 1 {
                    held.steps(&changes, steps);
                }
            }
            held.peak()
        };
        self.ranks.iter().map(peak).collect()
    }
}

/// Groups repeated steps, regardless of their micro-batches.
fn repeated(mut steps: Vec<ScheduleStep>) -> Vec<Repeated> {
    let of_any = |action: Action| Action { micro_batch: 0, ..action };
    for step in &mut steps {
        *step = match *step {
            ScheduleStep::One(action) => ScheduleStep::One(of_any(action)),
            ScheduleStep::Overlapped(one, other) => {
                ScheduleStep::Overlapped(of_any(one), of_any(other))
            }
        };
    }
    let mut runs: Vec<Repeated> = Vec::new();
    let mut rest = steps.as_slice();
    while !rest.is_empty() {
        let times = |together: usize| {
            let same = rest.iter().zip(&rest[together.min(rest.len())..]);
            same.take_while(|(a, b)| a == b).count() / together + 1
        };
        let covered = |together: &usize| times(*together) * together;
        let repeats = (1..=MOST_TOGETHER).filter(|together| times(*together) > 1);
        let together = repeats.max_by_key(covered).unwrap_or(1);
        let (steps, times) = (rest[..together].to_vec(), times(together));
        rest = &rest[times * together..];
        runs.push(Repeated { steps, times: times as u32 });
    }
    runs
}

/// Bytes that passes of a stage allocate when they begin and free when they end.
type Changes = [[u64; 2]; 4];

/// Kinds of actions that allocate and free memory, in the order of their discriminants.
const PASSES: [ActionKind; 4] =
    [ActionKind::Forward, ActionKind::Backward, ActionKind::InputGrad, ActionKind::WeightGrad];

fn changes(stages: &[ActivationBytes]) -> Vec<Changes> {
    stages.iter().map(|kept| PASSES.map(|it| change(it, kept))).collect()
}

/// Memory of a rank at a time.
#[derive(Default)]
struct LiveMemory {
    now: i128,
    most: i128,
    /// Bytes that the first of a pair frees when the second ends.
    freed_later: u64,
}

impl LiveMemory {
    fn steps(&mut self, changes: &[Changes], steps: &[ScheduleStep]) {
        for step in steps {
            let is_pair = matches!(step, ScheduleStep::Overlapped(..));
            for (action, nth) in step.actions().zip(0..) {
                self.pass(changes, action.stage, action.kind, is_pair && nth == 0);
            }
        }
    }

    /// Applies a pass; the first of a pair is freed with the second, as both have begun by then.
    fn pass(&mut self, changes: &[Changes], stage: u32, kind: ActionKind, is_first: bool) {
        let Some([taken, freed]) = changes[stage as usize].get(kind as usize) else { return };
        self.now += i128::from(*taken);
        self.most = self.most.max(self.now);
        if is_first {
            self.freed_later = *freed;
        } else {
            self.now -= i128::from(freed + std::mem::take(&mut self.freed_later));
        }
    }

    fn peak(&self) -> Bytes {
        Bytes::new(u64::try_from(self.most).unwrap_or(u64::MAX))
    }
}

/// Bytes that an action allocates when it begins, and that it frees when it ends.
pub(crate) fn change(kind: ActionKind, stage: &ActivationBytes) -> [u64; 2] {
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
