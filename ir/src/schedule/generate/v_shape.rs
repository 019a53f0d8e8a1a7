//! V-Half and V-Min: less memory than ZBV, by a building block with shorter lives.
//!
//! A building block says when the passes of one micro-batch run on each rank; repeated every six
//! units (two chunks, three passes each) it fills every rank with no two passes at the same time.
//! How long a chunk's activations live in it, over six, is how many the rank holds. The block gives
//! the order of forwards and input gradients; then the order is squeezed: each rank does what comes
//! next as soon as it can, and weight gradients fill the gaps. In warm-up and drain, where the block
//! leaves gaps, what comes later in the block may go ahead as long as memory stays in the limit.
//!
//! # Source
//!
//! Qi et al. 2024, *Pipeline parallelism with controllable memory* (arXiv 2405.15362), sections 3
//! and 4 and appendix A for the offsets; their code reorders warm-up and drain by other rules.

use super::{Step, forward, input_grad, weight_grad};

/// About half of 1F1B's memory: `p / 2 + 1` micro-batches.
///
/// ```text
/// 0 | 0F0 0F1 3F0 3I0 0F2 3W0 ..
/// 1 | 1F0 2F0 1F1 2F1 2I0 2W0 ..
/// ```
pub(super) fn v_half(p: u32, m: u32) -> Vec<Vec<Step>> {
    let gap = if p.is_multiple_of(2) { 3 } else { 0 };
    let block =
        |rank| [2 * rank, 3 * p - rank - 2, 3 * p + gap + 2 * rank - 1, 6 * p + gap - rank - 2];
    squeeze(&Block { offsets: (0..p).map(block).collect(), m, most_held: 2 * (p / 2 + 1) })
}

/// About a third of 1F1B's memory: `(p + 4) / 3` micro-batches.
pub(super) fn v_min(p: u32, m: u32) -> Vec<Vec<Step>> {
    let gap = if p.is_multiple_of(3) { 2 } else { 0 };
    let block = |rank| [rank, 2 * p - 1 - rank, 2 * p + gap + rank, 4 * p + gap - 1 - rank];
    squeeze(&Block { offsets: (0..p).map(block).collect(), m, most_held: 2 * ((p + 4) / 3) })
}

/// When each rank does the first micro-batch's passes, in the order in which data runs: forward of
/// chunk 0 and 1, input gradient of chunk 1 and 0.
struct Block {
    offsets: Vec<[u32; 4]>,
    m: u32,
    /// Chunks that a rank may hold.
    most_held: u32,
}

/// Units between a micro-batch and the next.
const INTERVAL: u32 = 6;

/// The chunk of each pass, and whether it is a forward.
const PASSES: [(usize, bool); 4] = [(0, true), (1, true), (1, false), (0, false)];

/// How many of the first and of the last micro-batches may go ahead of the block's order.
#[derive(Clone, Copy)]
struct Ahead {
    first: u32,
    last: u32,
}

/// The block's schedule with the passes ahead that make it shortest; the fewest ahead among equals.
fn squeeze(block: &Block) -> Vec<Vec<Step>> {
    let p = block.offsets.len() as u32;
    let parts = [0, p / 4, p / 2, p / 2 + 1, p * 5 / 8, p * 3 / 4, p];
    let choices = parts
        .into_iter()
        .flat_map(|first| [0, p / 2, p].into_iter().map(move |last| Ahead { first, last }));
    let schedules = choices.filter_map(|ahead| Squeeze::new(block, ahead).run());
    schedules.min_by_key(|(span, _)| *span).expect("the block's own order fits its memory").1
}

struct Squeeze<'a> {
    block: &'a Block,
    ahead: Ahead,
    time: u32,
    ranks: Vec<Rank>,
    /// When each pass of each micro-batch on each rank ends.
    ends: Vec<u32>,
}

#[derive(Default)]
struct Rank {
    steps: Vec<Step>,
    /// Micro-batches done, by pass.
    done: [u32; 4],
    held: u32,
    /// Weight gradients that wait: stage and micro-batch, from `weights_done` on.
    weights: Vec<(u32, u32)>,
    weights_done: usize,
    start: Option<u32>,
    end: u32,
}

impl<'a> Squeeze<'a> {
    fn new(block: &'a Block, ahead: Ahead) -> Self {
        let p = block.offsets.len();
        let ranks = (0..p).map(|_| Rank::default()).collect();
        Self { block, ahead, time: 0, ranks, ends: vec![u32::MAX; p * 4 * block.m as usize] }
    }

    /// The longest time from a rank's first step to its last, and the steps; none if what went ahead
    /// took the room of what all wait for.
    fn run(mut self) -> Option<(u32, Vec<Vec<Step>>)> {
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
        let span = |rank: &Rank| rank.end - rank.start.unwrap_or(0);
        let longest = self.ranks.iter().map(span).max().unwrap_or(0);
        Some((longest, self.ranks.into_iter().map(|rank| rank.steps).collect()))
    }

    /// The pass that `rank` does now, if any can: the first in the block's order that is ready, if
    /// those that it overtakes keep their room in memory.
    fn choose(&self, rank: usize) -> Option<usize> {
        let Rank { done, held, .. } = &self.ranks[rank];
        let mut passes = [0, 1, 2, 3];
        let due = |pass: usize| self.block.offsets[rank][pass] + INTERVAL * done[pass];
        passes.sort_unstable_by_key(|pass| due(*pass));
        let mut room = self.block.most_held - held;
        let mut is_next = true;
        for pass in passes.into_iter().filter(|pass| done[*pass] < self.block.m) {
            let (chunk, is_forward) = PASSES[pass];
            let micro_batch = done[pass];
            let is_early = micro_batch < self.ahead.first;
            let is_late = micro_batch + self.ahead.last >= self.block.m;
            let may = !is_forward || (room > 0 && (is_next || is_early || is_late));
            if may && self.is_ready(rank, pass, micro_batch) {
                return Some(pass);
            }
            if is_forward && chunk == 1 {
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

    /// Does the pass, or a weight gradient if there is none; says whether anything was done.
    fn perform(&mut self, rank: usize, pass: Option<usize>) -> bool {
        let end = self.time + 1;
        let num_ranks = self.ranks.len() as u32;
        let state = &mut self.ranks[rank];
        if let Some(pass) = pass {
            let (chunk, is_forward) = PASSES[pass];
            let stage = [rank as u32, 2 * num_ranks - 1 - rank as u32][chunk];
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
        let state = &mut self.ranks[rank];
        state.start.get_or_insert(end - 1);
        state.end = end;
        true
    }

    fn index(&self, rank: usize, pass: usize, micro_batch: u32) -> usize {
        (rank * 4 + pass) * self.block.m as usize + micro_batch as usize
    }
}
