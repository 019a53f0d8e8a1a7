//! Schedules with several stages per rank: stage `s` is on rank `s mod p`.

use super::steps::{backward, forward, input_grad, weight_grad};
use crate::schedule::ScheduleStep;

/// All micro-batches go through one stage of a rank, then through its next stage; backwards run in the reverse order.
///
/// ```text
/// 0 | 0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0
/// 1 | 1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0
/// ```
///
/// # Source
///
/// Lamy-Poirier 2022, *Breadth-first pipeline parallelism* (arXiv 2211.05953), section 4.1; the
/// order of backwards is PyTorch's `ScheduleLoopedBFS`.
pub(super) fn looped_bfs(p: u32, m: u32, v: u32) -> Vec<Vec<ScheduleStep>> {
    let steps = |rank| {
        let stages = (0..v).map(move |nth| nth * p + rank);
        let forwards = stages.clone().flat_map(move |s| (0..m).map(move |i| forward(s, i)));
        let backwards = stages.rev().flat_map(move |s| (0..m).rev().map(move |i| backward(s, i)));
        forwards.chain(backwards)
    };
    (0..p).map(|rank| steps(rank).collect()).collect()
}

/// 1F1B over several stages per rank: micro-batches go in rounds of about `p`, each round through all of a rank's
/// stages.
///
/// ```text
/// 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
/// 1 | 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3
/// ```
///
/// See [`rounds`] for numbers of micro-batches that the ranks do not divide.
///
/// # Source
///
/// Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.2; PyTorch's `ScheduleInterleaved1F1B`.
pub(super) fn one_f_one_b(p: u32, m: u32, v: u32) -> Vec<Vec<ScheduleStep>> {
    let round = rounds(p, m);
    let order = Order::new(p, m, v, &round);
    let steps = |rank: u32| {
        let num_warmup = ((v - 1) * round[0] + 2 * (p - 1 - rank)).min(m * v) as usize;
        let mut steps: Vec<_> = order.forwards(rank).take(num_warmup).collect();
        let mut forwards = order.forwards(rank).skip(num_warmup);
        for (stage, i) in order.backwards(rank) {
            steps.extend(forwards.next());
            steps.push(backward(stage, i));
        }
        steps
    };
    (0..p).map(steps).collect()
}

/// ZB-H1 over several stages per rank: half the warm-up of interleaved 1F1B; on rank `r` each weight gradient is
/// delayed by `r` input gradients.
///
/// ```text
/// 0 | 0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
/// 1 | 1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
/// ```
///
/// With one stage a rank this is [`super::zero_bubble::h1`].
///
/// # Source
///
/// PyTorch's `ScheduleInterleavedZeroBubble`, after Qi et al. 2023 (arXiv 2401.10241), section 2.
pub(super) fn zero_bubble(p: u32, m: u32, v: u32) -> Vec<Vec<ScheduleStep>> {
    let round = rounds(p, m);
    let order = Order::new(p, m, v, &round);
    let steps = |rank: u32| {
        let num_warmup = ((v - 1) * round[0] + p - 1 - rank).min(m * v) as usize;
        let mut steps: Vec<_> = order.forwards(rank).take(num_warmup).collect();
        let mut forwards = order.forwards(rank).skip(num_warmup);
        let mut weights = order.backwards(rank);
        for (done, (stage, i)) in order.backwards(rank).enumerate() {
            steps.extend(forwards.next());
            steps.push(input_grad(stage, i));
            if done >= rank as usize {
                steps.extend(weights.next().map(|(stage, i)| weight_grad(stage, i)));
            }
        }
        steps.extend(weights.map(|(stage, i)| weight_grad(stage, i)));
        steps
    };
    (0..p).map(steps).collect()
}

/// Number of micro-batches in each round: there are `m / p` rounds (at least one), as equal as possible, longer ones
/// first.
///
/// Where rounds can be equal, this is PyTorch's order: 10 micro-batches on 4 ranks run as 5 and 5. Where they cannot,
/// PyTorch refuses. Megatron-LM makes rounds of `p` and a short last one, which is the same where `p` divides `m`. 10
/// micro-batches on 4 ranks would run as 4, 4 and 2; that order waits for the short round to return, and with this
/// warm-up it can deadlock (9 on 4 with 3 stages per rank).
fn rounds(p: u32, m: u32) -> Vec<u32> {
    let num_rounds = (m / p).max(1);
    (0..num_rounds).map(|i| m / num_rounds + u32::from(i < m % num_rounds)).collect()
}

/// Order of the micro-batches in a rank's stages.
struct Order {
    p: u32,
    v: u32,
    /// Index of the stage on its rank, and micro-batch.
    forwards: Vec<(u32, u32)>,
}

impl Order {
    fn new(p: u32, m: u32, v: u32, rounds: &[u32]) -> Self {
        let mut forwards = Vec::with_capacity((m * v) as usize);
        let mut first = 0;
        for round in rounds {
            forwards.extend((0..v).flat_map(|c| (first..first + round).map(move |i| (c, i))));
            first += round;
        }
        Self { p, v, forwards }
    }

    fn forwards(&self, rank: u32) -> impl Iterator<Item = ScheduleStep> {
        self.forwards.iter().map(move |(nth, i)| forward(nth * self.p + rank, *i))
    }

    /// Stage and micro-batch of each backward: in the order of forwards, but from the last stage to the first.
    fn backwards(&self, rank: u32) -> impl Iterator<Item = (u32, u32)> {
        self.forwards.iter().map(move |(nth, i)| ((self.v - 1 - nth) * self.p + rank, *i))
    }
}
