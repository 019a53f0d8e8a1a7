//! V-Half and V-Min: less memory than ZBV, from a building block in which activations have shorter lifetimes.
//!
//! A building block fixes when the passes of one micro-batch run on each rank. Repeated every six time units (two
//! stages, three passes each), it fills every rank, and no two passes run at the same time. The lifetime of a stage's
//! activations in the block, divided by six, is the number of them that the rank holds. The block gives the order of
//! forwards and input gradients. The order is then compacted: each rank runs the next pass as soon as it can, and
//! weight gradients fill the gaps. In warm-up and drain, where the block leaves gaps, later passes of the block may
//! run earlier, as long as memory stays within the limit.
//!
//! The shortest order for equal passes need not be the shortest for other times. A compacted order has lost the gaps
//! that would absorb the difference; with the pass times of a transformer, the block's own order, with weight
//! gradients in its gaps, may end 7 % earlier. Of all these orders, the one that is shortest over both sets of times
//! is chosen.
//!
//! # Source
//!
//! Qi et al. 2024, *Pipeline parallelism with controllable memory* (arXiv 2405.15362), sections 3 and 4, and appendix
//! A for the offsets. Their code reorders warm-up and drain by other rules or, with vocabulary parallelism, not at
//! all.

use std::collections::VecDeque;

use super::steps::{forward, input_grad, weight_grad};
use crate::schedule::{Action, ActionKind, ScheduleStep};

/// About half of 1F1B's memory: `p / 2 + 1` micro-batches.
///
/// ```text
/// 0 | 0F0 0F1 3F0 3I0 0F2 3W0 ..
/// 1 | 1F0 2F0 1F1 2F1 2I0 2W0 ..
/// ```
pub(super) fn v_half(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    let gap = if p.is_multiple_of(2) { 3 } else { 0 };
    let block =
        |rank| [2 * rank, 3 * p - rank - 2, 3 * p + gap + 2 * rank - 1, 6 * p + gap - rank - 2];
    shortest(&Block { offsets: (0..p).map(block).collect(), m, most_held: 2 * (p / 2 + 1) })
}

/// About a third of 1F1B's memory: `(p + 4) / 3` micro-batches.
pub(super) fn v_min(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    let gap = if p.is_multiple_of(3) { 2 } else { 0 };
    let block = |rank| [rank, 2 * p - 1 - rank, 2 * p + gap + rank, 4 * p + gap - 1 - rank];
    shortest(&Block { offsets: (0..p).map(block).collect(), m, most_held: 2 * ((p + 4) / 3) })
}

/// Start times of the first micro-batch's passes on each rank, in the order of the data flow: forward of the rank's
/// stages 0 and 1, input gradient of 1 and 0.
struct Block {
    offsets: Vec<[u32; 4]>,
    m: u32,
    /// Number of stage activations that a rank may hold.
    most_held: u32,
}

/// Units between consecutive micro-batches.
const INTERVAL: u32 = 6;

/// For each pass, the index of its stage on the rank, and whether it is a forward.
const PASSES: [(usize, bool); 4] = [(0, true), (1, true), (1, false), (0, false)];

/// Numbers of micro-batches, at the beginning and at the end, whose passes may run ahead of the block's order.
#[derive(Clone, Copy)]
struct Ahead {
    first: u32,
    last: u32,
}

/// Times of the passes of a stage: forward, input gradient, weight gradient, and of a message between ranks.
type Costs = [u64; 4];

/// Equal passes, and those of a transformer's layers, with the same sum.
///
/// # Source
///
/// Qi et al. 2023 (arXiv 2401.10241) profiled, with GPT of 14.6 billion parameters on A100, 11.3, 11.2 and
/// 8.1 ms, and 0.4 ms for a message.
const COSTS: [Costs; 2] = [[100, 100, 100, 0], [111, 110, 79, 4]];

/// The order that is shortest over all of [`COSTS`]; in a tie, the one with the fewest passes that run ahead.
fn shortest(block: &Block) -> Vec<Vec<ScheduleStep>> {
    let p = block.offsets.len() as u32;
    let parts = [0, p / 4, p / 2, p / 2 + 1, p * 5 / 8, p * 3 / 4, p];
    let choices = parts
        .into_iter()
        .flat_map(|first| [0, p / 2, p].into_iter().map(move |last| Ahead { first, last }));
    let squeezed = choices.filter_map(|ahead| Squeeze::new(block, ahead).run());
    let orders = squeezed.chain([block.own_order()]);
    let span =
        |ranks: &Vec<Vec<ScheduleStep>>| COSTS.map(|costs| longest_span(ranks, costs, block.m));
    orders.min_by_key(|ranks| span(ranks).iter().sum::<u64>()).expect("the block's own is one")
}

/// The longest time between the first and the last step of one rank, if all steps start as early as possible.
fn longest_span(ranks: &[Vec<ScheduleStep>], costs: Costs, m: u32) -> u64 {
    let p = ranks.len();
    let [forward, input_grad, weight_grad, message] = costs;
    // End times of each stage's forward and input gradient of each micro-batch.
    let mut ends = vec![None; 2 * p * 2 * m as usize];
    let index = |stage: usize, pass: usize, action: &Action| {
        (stage * 2 + pass) * m as usize + action.micro_batch as usize
    };
    let rank_of = |stage: usize| stage.min(2 * p - 1 - stage);
    let mut spans = vec![(None, 0); p];
    let mut done = vec![0; p];
    let mut is_moving = true;
    while is_moving {
        is_moving = false;
        for (rank, steps) in ranks.iter().enumerate() {
            while let Some(ScheduleStep::One(action)) = steps.get(done[rank]) {
                let stage = action.stage as usize;
                let from = match action.kind {
                    ActionKind::Forward => stage.checked_sub(1).map(|before| (before, 0)),
                    ActionKind::InputGrad if stage + 1 < 2 * p => Some((stage + 1, 1)),
                    _ => None,
                };
                let ready = from.map_or(Some(0), |(stage, pass)| {
                    let delay = if rank_of(stage) == rank { 0 } else { message };
                    ends[index(stage, pass, action)].map(|end: u64| end + delay)
                });
                let Some(ready) = ready else { break };
                let (start, end) = &mut spans[rank];
                let begin = ready.max(*end);
                start.get_or_insert(begin);
                *end = begin
                    + match action.kind {
                        ActionKind::Forward => forward,
                        ActionKind::InputGrad => input_grad,
                        _ => weight_grad,
                    };
                match action.kind {
                    ActionKind::Forward => ends[index(stage, 0, action)] = Some(*end),
                    ActionKind::InputGrad => ends[index(stage, 1, action)] = Some(*end),
                    _ => {}
                }
                done[rank] += 1;
                is_moving = true;
            }
        }
    }
    spans.iter().map(|(start, end)| end - start.unwrap_or(0)).max().unwrap_or(0)
}

impl Block {
    /// Every pass at its time in the block, and a weight gradient in every gap where one is pending.
    fn own_order(&self) -> Vec<Vec<ScheduleStep>> {
        let p = self.offsets.len() as u32;
        let order = |(rank, offsets): (u32, &[u32; 4])| {
            let last = offsets.iter().max().map_or(0, |latest| latest + INTERVAL * (self.m - 1));
            let mut places = vec![None; last as usize + 1];
            for (pass, offset) in offsets.iter().enumerate() {
                for micro_batch in 0..self.m {
                    places[(offset + INTERVAL * micro_batch) as usize] = Some((pass, micro_batch));
                }
            }
            let mut weights = VecDeque::new();
            let mut steps = Vec::with_capacity((INTERVAL * self.m) as usize);
            for place in places {
                if let Some((pass, micro_batch)) = place {
                    let (nth, is_forward) = PASSES[pass];
                    let stage = [rank, 2 * p - 1 - rank][nth];
                    if is_forward {
                        steps.push(forward(stage, micro_batch));
                    } else {
                        steps.push(input_grad(stage, micro_batch));
                        weights.push_back(weight_grad(stage, micro_batch));
                    }
                } else {
                    steps.extend(weights.pop_front());
                }
            }
            steps.extend(weights);
            steps
        };
        (0..p).zip(&self.offsets).map(order).collect()
    }
}

struct Squeeze<'a> {
    block: &'a Block,
    ahead: Ahead,
    time: u32,
    ranks: Vec<Rank>,
    /// End time of each pass of each micro-batch on each rank.
    ends: Vec<u32>,
}

#[derive(Default)]
struct Rank {
    steps: Vec<ScheduleStep>,
    /// Number of micro-batches done, by pass.
    done: [u32; 4],
    held: u32,
    /// Weight gradients, as stage and micro-batch; those from `weights_done` on are pending.
    weights: Vec<(u32, u32)>,
    weights_done: usize,
}

impl<'a> Squeeze<'a> {
    fn new(block: &'a Block, ahead: Ahead) -> Self {
        let p = block.offsets.len();
        let ranks = (0..p).map(|_| Rank::default()).collect();
        Self { block, ahead, time: 0, ranks, ends: vec![u32::MAX; p * 4 * block.m as usize] }
    }

    /// The steps of each rank; `None` if passes that ran ahead took the memory of a pass that all others wait for.
    fn run(mut self) -> Option<Vec<Vec<ScheduleStep>>> {
        let num_steps = INTERVAL as usize * self.block.m as usize;
        let mut left = num_steps * self.ranks.len();
        while left > 0 {
            let before = left;
            for rank in 0..self.ranks.len() {
                let chosen = self.choose(rank);
                left -= usize::from(self.perform(rank, chosen));
            }
            if left == before {
                return None;
            }
            self.time += 1;
        }
        Some(self.ranks.into_iter().map(|rank| rank.steps).collect())
    }

    /// The pass that `rank` runs now, if any can: the first in the block's order that is ready, if enough memory is
    /// left for those that it overtakes.
    fn choose(&self, rank: usize) -> Option<usize> {
        let Rank { done, held, .. } = &self.ranks[rank];
        let mut passes = [0, 1, 2, 3];
        let due = |pass: usize| self.block.offsets[rank][pass] + INTERVAL * done[pass];
        passes.sort_unstable_by_key(|pass| due(*pass));
        let mut room = self.block.most_held - held;
        let mut is_next = true;
        for pass in passes.into_iter().filter(|pass| done[*pass] < self.block.m) {
            let (nth, is_forward) = PASSES[pass];
            let micro_batch = done[pass];
            let is_early = micro_batch < self.ahead.first;
            let is_late = micro_batch + self.ahead.last >= self.block.m;
            let may = !is_forward || (room > 0 && (is_next || is_early || is_late));
            if may && self.is_ready(rank, pass, micro_batch) {
                return Some(pass);
            }
            if is_forward && nth == 1 {
                room = room.saturating_sub(1);
            }
            is_next = false;
        }
        None
    }

    fn is_ready(&self, rank: usize, pass: usize, micro_batch: u32) -> bool {
        let is_done = |rank, pass| self.ends[self.index(rank, pass, micro_batch)] <= self.time;
        let goes_down = pass.is_multiple_of(2);
        let last = self.ranks.len() - 1;
        match (goes_down, pass) {
            (true, 0) if rank == 0 => true,
            (true, _) if rank == 0 => is_done(0, pass - 1),
            (true, _) => is_done(rank - 1, pass),
            (false, _) if rank == last => is_done(last, pass - 1),
            (false, _) => is_done(rank + 1, pass),
        }
    }

    /// Runs the pass, or a weight gradient if there is none; returns whether anything was run.
    fn perform(&mut self, rank: usize, pass: Option<usize>) -> bool {
        let end = self.time + 1;
        let num_ranks = self.ranks.len() as u32;
        let state = &mut self.ranks[rank];
        if let Some(pass) = pass {
            let (nth, is_forward) = PASSES[pass];
            let stage = [rank as u32, 2 * num_ranks - 1 - rank as u32][nth];
            let micro_batch = state.done[pass];
            state.done[pass] += 1;
            if is_forward {
                state.held += 1;
                state.steps.push(forward(stage, micro_batch));
            } else {
                state.weights.push((stage, micro_batch));
                state.steps.push(input_grad(stage, micro_batch));
            }
            let index = self.index(rank, pass, micro_batch);
            self.ends[index] = end;
        } else if let Some((stage, micro_batch)) = state.weights.get(state.weights_done) {
            state.steps.push(weight_grad(*stage, *micro_batch));
            state.weights_done += 1;
            state.held -= 1;
        } else {
            return false;
        }
        true
    }

    fn index(&self, rank: usize, pass: usize, micro_batch: u32) -> usize {
        (rank * 4 + pass) * self.block.m as usize + micro_batch as usize
    }
}
