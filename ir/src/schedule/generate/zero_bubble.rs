//! Handcrafted schedules with separate passes for gradients of activations and of parameters, for equal costs of the
//! three passes.

use super::steps::{forward, input_grad, weight_grad};
use crate::schedule::ScheduleStep;

/// Warm-up and memory of 1F1B; weight gradients are delayed into the drain, on rank `r` by `r` micro-batches.
///
/// ```text
/// 0 | F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
/// 1 | F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
/// 2 | F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
/// ```
///
/// # Source
///
/// Qi et al. 2023, *Zero bubble pipeline parallelism* (arXiv 2401.10241), section 2.1 and figure 2.
/// Equal to PyTorch's `ScheduleInterleavedZeroBubble` with one stage, action for action.
pub(super) fn h1(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    (0..p).map(|rank| split(rank, m, p - 1 - rank, rank)).collect()
}

/// Twice the warm-up of ZB-H1, so that no rank waits for its first gradient, and twice the delay of
/// weight gradients: the ranks' work is a parallelogram in time.
///
/// ```text
/// 0 | F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
/// 1 | F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
/// 2 | F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5
/// ```
///
/// # Source
///
/// Qi et al. 2023, section 2.2 and figure 3: `2 p - 1` micro-batches in flight on every rank.
pub(super) fn h2(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    (0..p).map(|rank| split(rank, m, 2 * (p - 1 - rank), 2 * rank)).collect()
}

/// `num_warmup` forwards, then forwards and input gradients in alternation; each weight gradient follows its input
/// gradient after `delay` more input gradients.
fn split(rank: u32, m: u32, num_warmup: u32, delay: u32) -> Vec<ScheduleStep> {
    let mut steps: Vec<_> = (0..num_warmup.min(m)).map(|i| forward(rank, i)).collect();
    for i in 0..m {
        steps.extend((i + num_warmup < m).then(|| forward(rank, i + num_warmup)));
        steps.push(input_grad(rank, i));
        steps.extend(i.checked_sub(delay).map(|late| weight_grad(rank, late)));
    }
    steps.extend((m.saturating_sub(delay)..m).map(|i| weight_grad(rank, i)));
    steps
}

/// ZBV: two stages per rank, which go down the ranks and up again, so that the rank that starts a micro-batch also
/// ends its forward. No rank idles at equal costs, in the memory of 1F1B.
///
/// ```text
/// 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 ..
/// 1 | 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 ..
/// ```
///
/// With fewer than `2 p - 1` micro-batches, this is the schedule for `2 p - 1` without the surplus micro-batches.
///
/// # Source
///
/// Qi et al. 2023, section 6 and figure 5; equal to PyTorch's `ScheduleZBVZeroBubble`, action for action.
pub(super) fn v(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    (0..p).map(|rank| v_rank(p, m, rank)).collect()
}

fn v_rank(p: u32, m: u32, rank: u32) -> Vec<ScheduleStep> {
    let mut steps = Counted::new([rank, 2 * p - 1 - rank], m);
    let all = m.max(2 * p - 1);
    for _ in 0..2 * (p - rank) - 1 {
        steps.forward(0);
    }
    for _ in 0..rank {
        steps.forward(1);
        steps.forward(0);
    }
    for _ in 0..p - rank {
        steps.forward(1);
        steps.backward(1);
    }
    while steps.forwards[1] < all {
        if steps.forwards[0] < all {
            steps.forward(0);
        }
        steps.backward(0);
        steps.forward(1);
        steps.backward(1);
    }
    for _ in 0..rank {
        steps.input_grad(0);
        steps.input_grad(1);
    }
    for _ in 0..p - rank {
        steps.input_grad(0);
        steps.weight_grad(0);
    }
    for nth in [1, 0] {
        while steps.weight_grads[nth] < steps.input_grads[nth] {
            steps.weight_grad(nth);
        }
    }
    steps.steps
}

/// Steps of a rank with two stages, with counters of micro-batches.
struct Counted {
    steps: Vec<ScheduleStep>,
    stages: [u32; 2],
    /// Micro-batches from this number on are counted, but add no step.
    m: u32,
    forwards: [u32; 2],
    input_grads: [u32; 2],
    weight_grads: [u32; 2],
}

impl Counted {
    fn new(stages: [u32; 2], m: u32) -> Self {
        let [forwards, input_grads, weight_grads] = [[0; 2]; 3];
        Self { steps: Vec::new(), stages, m, forwards, input_grads, weight_grads }
    }

    fn forward(&mut self, nth: usize) {
        self.push(forward(self.stages[nth], self.forwards[nth]), self.forwards[nth]);
        self.forwards[nth] += 1;
    }

    fn input_grad(&mut self, nth: usize) {
        self.push(input_grad(self.stages[nth], self.input_grads[nth]), self.input_grads[nth]);
        self.input_grads[nth] += 1;
    }

    fn weight_grad(&mut self, nth: usize) {
        let i = self.weight_grads[nth];
        self.push(weight_grad(self.stages[nth], i), i);
        self.weight_grads[nth] += 1;
    }

    fn backward(&mut self, nth: usize) {
        self.input_grad(nth);
        self.weight_grad(nth);
    }

    fn push(&mut self, step: ScheduleStep, micro_batch: u32) {
        self.steps.extend((micro_batch < self.m).then_some(step));
    }
}
