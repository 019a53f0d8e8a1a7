//! `DualPipe` and `DualPipeV`: two streams of micro-batches cross on each rank, and a forward of one
//! overlaps a backward of the other.

use std::collections::VecDeque;

use super::error::GenerateError;
use super::steps::{backward, forward, input_grad, weight_grad};
use crate::schedule::{ScheduleKind, ScheduleStep};

/// `DualPipeV`: two stages per rank, which go down the ranks and up again; each of the two stages is one stream.
///
/// # Source
///
/// DeepSeek-AI 2025, `DualPipe` (github.com/deepseek-ai/DualPipe), after Sea AI Lab's "cut in half"; equal to
/// PyTorch's `ScheduleDualPipeV`, action for action.
pub(super) fn pipe_v(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    let steps = |rank| rank_steps(p, m, rank, |nth, i| ([rank, 2 * p - 1 - rank][nth], i));
    (0..p).map(steps).collect()
}

/// Checks the numbers for [`pipe_v`]: there must be at least as many micro-batches as the `2 p` stages.
pub(super) fn check_pipe_v(p: u32, m: u32) -> Result<(), GenerateError> {
    enough(ScheduleKind::DualPipeV, p, m)
}

/// `DualPipe`: micro-batches enter at both ends, even ones run down the ranks, odd ones up
/// ([`StagePlacement::Bidirectional`](crate::schedule::StagePlacement::Bidirectional)), over two copies of the
/// parameters. Stages are numbered along the model, so rank `r` has the stages `r` and `p - 1 - r`. The ranks `r` and
/// `p - 1 - r` mirror each other: each runs the order of rank `min(r, p - 1 - r)` of [`pipe_v`] on half the ranks, with
/// the micro-batches that come from its own end as the first stream.
///
/// # Source
///
/// DeepSeek-AI 2024, *DeepSeek-V3* (arXiv 2412.19437), section 3.2.1 and figure 5, and
/// github.com/deepseek-ai/DualPipe, whose two halves of the batch are our even and odd micro-batches.
pub(super) fn pipe(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    let steps = |rank: u32| {
        let from_end = rank.min(p - 1 - rank);
        let is_upper = u32::from(rank >= p / 2);
        let named = |nth, i| {
            let stage = [from_end, p - 1 - from_end][nth];
            (stage, 2 * i + (is_upper ^ nth as u32))
        };
        rank_steps(p / 2, m / 2, from_end, named)
    };
    (0..p).map(steps).collect()
}

/// Checks the numbers for [`pipe`]: both must be even, with at least twice as many micro-batches as ranks.
pub(super) fn check_pipe(p: u32, m: u32) -> Result<(), GenerateError> {
    let (kind, num_ranks, num_micro_batches) = (ScheduleKind::DualPipe, p, m);
    if !p.is_multiple_of(2) {
        return Err(GenerateError::OddRanks { kind, num_ranks });
    }
    if !m.is_multiple_of(2) {
        return Err(GenerateError::OddMicroBatches { kind, num_micro_batches });
    }
    enough(kind, p, m)
}

fn enough(kind: ScheduleKind, p: u32, m: u32) -> Result<(), GenerateError> {
    let (num_ranks, num_micro_batches, least) = (p, m, p.saturating_mul(2));
    if m >= least {
        return Ok(());
    }
    Err(GenerateError::FewMicroBatches { kind, num_ranks, num_micro_batches, least })
}

/// The eight phases of a rank of `p`. Its first stage is `rank` stages from the start of one stream; its second stage
/// is at the same distance from the end of the other. `named` maps a stage's index and counter to stage and
/// micro-batch.
fn rank_steps(
    p: u32,
    m: u32,
    rank: u32,
    named: impl Fn(usize, u32) -> (u32, u32),
) -> Vec<ScheduleStep> {
    let mut steps = Streams {
        steps: Vec::new(),
        named,
        forwards: [0; 2],
        backwards: [0; 2],
        late: VecDeque::new(),
    };
    let from_middle = p - 1 - rank;
    for _ in 0..2 * from_middle {
        steps.forward(0);
    }
    for _ in 0..=rank {
        steps.forward(0);
        steps.forward(1);
    }
    for _ in 0..from_middle {
        steps.input_grad(1);
        steps.weight_grad();
        steps.forward(1);
    }
    for i in 0..=m - 2 * p + rank {
        if i == 0 && from_middle == 0 {
            // The first pair in the middle is not overlapped, which makes the bubble smaller.
            steps.forward(0);
            steps.backward(1);
        } else {
            steps.overlapped(0, 1);
        }
        steps.overlapped(1, 0);
    }
    for _ in 0..from_middle {
        steps.backward(1);
        steps.overlapped(1, 0);
    }
    // From the middle of the last `2 (rank + 1)` backwards on, weight gradients are delayed into the drain.
    for i in 0..2 * (rank + 1) {
        let nth = 1 - (i % 2) as usize;
        if i > rank { steps.input_grad(nth) } else { steps.backward(nth) }
    }
    for _ in 0..from_middle {
        steps.weight_grad();
        steps.input_grad(0);
    }
    for _ in 0..=rank {
        steps.weight_grad();
    }
    steps.steps
}

/// Steps over two stages, with a counter of micro-batches for each.
struct Streams<N> {
    steps: Vec<ScheduleStep>,
    named: N,
    forwards: [u32; 2],
    backwards: [u32; 2],
    /// Stage and micro-batch of delayed weight gradients.
    late: VecDeque<(u32, u32)>,
}

impl<N: Fn(usize, u32) -> (u32, u32)> Streams<N> {
    fn forward(&mut self, nth: usize) {
        let (stage, i) = self.next_forward(nth);
        self.steps.push(forward(stage, i));
    }

    fn backward(&mut self, nth: usize) {
        let (stage, i) = self.next_backward(nth);
        self.steps.push(backward(stage, i));
    }

    fn input_grad(&mut self, nth: usize) {
        let (stage, i) = self.next_backward(nth);
        self.steps.push(input_grad(stage, i));
        self.late.push_back((stage, i));
    }

    fn weight_grad(&mut self) {
        self.steps.extend(self.late.pop_front().map(|(stage, i)| weight_grad(stage, i)));
    }

    fn overlapped(&mut self, forwards: usize, backwards: usize) {
        let (stage, i) = self.next_forward(forwards);
        let first = forward(stage, i).actions();
        let (stage, i) = self.next_backward(backwards);
        let second = backward(stage, i).actions();
        self.steps.extend(first.zip(second).map(|(f, b)| ScheduleStep::Overlapped(f, b)));
    }

    fn next_forward(&mut self, nth: usize) -> (u32, u32) {
        self.forwards[nth] += 1;
        (self.named)(nth, self.forwards[nth] - 1)
    }

    fn next_backward(&mut self, nth: usize) -> (u32, u32) {
        self.backwards[nth] += 1;
        (self.named)(nth, self.backwards[nth] - 1)
    }
}
