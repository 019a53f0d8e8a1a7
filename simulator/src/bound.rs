//! Lower bounds of the time of a step, from the work of its stages alone.

use ir::schedule::ScheduleKind;
use ir::units::Nanos;

/// Lower bounds on the times of a stage's passes and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinPassTimes {
    /// Time of the forward pass.
    pub forward: Nanos,
    /// Time until the gradient of the stage's input is computed.
    pub input_grad: Nanos,
    /// Time of both gradients.
    pub backward: Nanos,
    /// Times of the messages to the next stage and to the stage before, where these are on other ranks.
    pub sends: [Nanos; 2],
}

/// Lower bounds of the time of a step after its passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTail {
    /// Time on the rank that ends last, from its last pass until all ranks join the norm of all gradients.
    pub until_group_collective: Nanos,
    /// Time of all transfers of the rank that has most of them. They follow each other on its link and end before the
    /// rank joins the others.
    pub transfers: Nanos,
    /// Time of the norm, and of the longest update.
    pub update: Nanos,
}

/// Lower bound of the end of the passes of `num_micro_batches` over `num_ranks`, whatever waits for what: the longest
/// of several paths through them. Each path is a chain of actions that follow each other in every order of the
/// schedule's family:
///
/// - one micro-batch, through all stages and back;
/// - one micro-batch to the first stage of a rank, then everything that the rank does, and then back to the first stage
///   of the model;
/// - with 1F1B, interleaved or not, one micro-batch through all stages to the first gradient of a rank, then everything
///   that the rank still has to do, and then back;
/// - with all forwards first, the forwards of the slowest rank, then the gradients of the slowest rank;
/// - where micro-batches run one after the other, all of them.
///
/// [`StepTail::after`] adds the lower bound of the rest of the step.
pub fn lower_bound(
    kind: ScheduleKind,
    num_ranks: u32,
    num_micro_batches: u32,
    stages: &[MinPassTimes],
) -> Nanos {
    let placement = kind.placement();
    // For each stage: arrival of the first micro-batch's forward, and time from the last one's gradient to the end.
    let mut arrival = vec![Nanos::ZERO];
    let mut drain = vec![Nanos::ZERO];
    for stage in stages {
        let (before, after) = (arrival[arrival.len() - 1], drain[drain.len() - 1]);
        arrival.push(before + stage.forward + stage.sends[0]);
        drain.push(after + stage.sends[1] + stage.input_grad);
    }
    let num_stages = stages.len();
    let mut ranks = vec![RankTotals::default(); num_ranks as usize];
    for (index, stage) in stages.iter().enumerate() {
        for rank in placement.ranks(num_ranks, index as u32) {
            ranks[rank as usize].add(index, stage);
        }
    }
    let m = u64::from(num_micro_batches);
    let each = m / u64::from(placement.num_copies());
    let through = arrival[num_stages] + drain[num_stages];
    let mut end = through;
    for (of, rank) in ranks.iter().zip(0..) {
        let RankTotals { forward, backward, slowest_forward, first, last, num_stages: v } = *of;
        let (forwards, backwards) = (forward * each, backward * each);
        // No stage of the rank is reached before its first stage.
        let leaves = drain[first] + stages[first].sends[1];
        let leaves = if kind.splits_backward() { Nanos::ZERO } else { leaves };
        end = end.max(arrival[first] + forwards + backwards + leaves);
        if let Some(warm_up) = warm_up(kind, num_ranks, rank, num_micro_batches, v) {
            // From the input of the last stage of the model to the gradient of the output of this rank's last stage.
            let head = arrival[num_stages - 1] + stages[num_stages - 1].forward;
            let turn = head + (drain[num_stages] - drain[last + 1]);
            // Each forward before the first gradient takes at most as long as that of the rank's slowest stage.
            let rest = forwards.saturating_sub(slowest_forward * u64::from(warm_up));
            end = end.max(turn + rest + backwards + leaves);
        }
    }
    if kind == ScheduleKind::Sequential {
        end = end.max(through * m);
    }
    if kind == ScheduleKind::GPipe {
        let slowest =
            |pass: fn(&MinPassTimes) -> Nanos| stages.iter().map(pass).max().unwrap_or_default();
        let others = slowest(|it| it.forward) + slowest(|it| it.backward);
        end = end.max(through + others * (m - 1));
    }
    end
}

/// Pass times of a rank for a micro-batch, over all its stages.
#[derive(Clone, Copy, Default)]
struct RankTotals {
    forward: Nanos,
    backward: Nanos,
    slowest_forward: Nanos,
    first: usize,
    last: usize,
    num_stages: u32,
}

impl RankTotals {
    fn add(&mut self, index: usize, stage: &MinPassTimes) {
        self.first = if self.num_stages == 0 { index } else { self.first };
        self.last = index;
        self.forward += stage.forward;
        self.backward += stage.backward;
        self.slowest_forward = self.slowest_forward.max(stage.forward);
        self.num_stages += 1;
    }
}

impl MinPassTimes {
    /// Bounds of a stage whose passes take `forward` and `whole`; `apart` holds the two gradients separately.
    pub fn new(
        kind: ScheduleKind,
        [forward, whole]: [Nanos; 2],
        apart: [Nanos; 2],
        sends: [Nanos; 2],
    ) -> Self {
        let [input_grad, weight_grad] = apart;
        if kind.splits_backward() {
            let backward = whole.min(input_grad + weight_grad);
            Self { forward, input_grad: whole.min(input_grad), backward, sends }
        } else {
            Self { forward, input_grad: whole, backward: whole, sends }
        }
    }
}

/// The most forwards of a rank before its first gradient; known for 1F1B only.
fn warm_up(kind: ScheduleKind, p: u32, rank: u32, m: u32, v: u32) -> Option<u32> {
    match kind {
        ScheduleKind::OneFOneB | ScheduleKind::AsyncOneFOneB => Some((p - rank).min(m)),
        ScheduleKind::Interleaved => {
            // The first round, which is the longest: `p` micro-batches if the number of micro-batches is a multiple of
            // the ranks.
            let round = m.div_ceil((m / p).max(1));
            Some((2 * (p - 1 - rank) + (v - 1) * round + 1).min(m * v))
        }
        _ => None,
    }
}

impl StepTail {
    /// Lower bound of the end of a step whose passes do not end before `passes`.
    pub fn after(&self, passes: Nanos) -> Nanos {
        self.transfers.max(passes + self.until_group_collective) + self.update
    }
}
