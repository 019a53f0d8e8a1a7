//! The list scheduler: assigns actions to free ranks in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ir::schedule::{Action, ActionKind, ScheduleStep, StagePlacement};
use ir::units::Nanos;
use simulator::{Durations, Earliest, RankTimes};

use super::policy::{Policy, Preference};
use super::request::{SchedulingRequest, Score, StageMemory};

/// A schedule with its times and peak memory.
pub(super) struct Outcome {
    pub(super) steps: Vec<Vec<ScheduleStep>>,
    pub(super) times: Earliest,
    pub(super) peak: u64,
}

impl Outcome {
    /// Score of the schedule, if it fits in memory.
    pub(super) fn score(&self, request: &SchedulingRequest<'_>) -> Option<Score> {
        score(&self.times, self.peak, request)
    }
}

/// Score of the times, if the peak fits in memory.
pub(super) fn score(times: &Earliest, peak: u64, request: &SchedulingRequest<'_>) -> Option<Score> {
    let span = times.ranks.iter().map(RankTimes::span).max()?;
    (peak <= request.limit).then_some((times.makespan, span, peak))
}

/// Time of an event that has not happened.
const NEVER: u64 = u64::MAX;

/// The next action of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Begins a pass of a stage.
    Begin(ActionKind, usize),
    /// Idles until this time.
    WaitUntil(u64),
    /// Idles until another rank sends it something.
    Park,
}

/// A pass that may be next, and the time from which it can begin.
#[derive(Clone, Copy, Debug)]
struct Ready {
    time: u64,
    stage: usize,
    due: f64,
}

pub(super) struct List<'a> {
    durations: &'a Durations,
    kept: StageMemory,
    limit: u64,
    m: usize,
    num_stages: usize,
    send: u64,
    /// Rank of each stage.
    rank_of: Vec<usize>,
    /// Stages of each rank, in the order of the model.
    stages_of: Vec<Vec<usize>>,
    /// End times of forwards and of input gradients, by stage and micro-batch.
    ends: [Vec<u64>; 2],
    /// Numbers of forwards, input gradients and weight gradients of each stage that have begun.
    begun: [Vec<usize>; 3],
    ranks: Vec<State>,
    now: u64,
    /// Times from the start of a micro-batch to each stage: see [`ways`].
    ways: [Vec<f64>; 2],
}

#[derive(Clone, Debug, Default)]
struct State {
    steps: Vec<ScheduleStep>,
    ends: Vec<Nanos>,
    start: Option<u64>,
    free: u64,
    busy: u64,
    held: u64,
    peak: u64,
    is_parked: bool,
    last: Option<ActionKind>,
}

impl<'a> List<'a> {
    pub(super) fn new(request: &SchedulingRequest<'a>, placement: &StagePlacement) -> Self {
        let num_stages = request.durations.stages.len();
        let (p, m) = (request.num_ranks, request.num_micro_batches as usize);
        let rank = |stage| placement.rank(p, stage as u32, 0).unwrap_or(0) as usize;
        let rank_of: Vec<usize> = (0..num_stages).map(rank).collect();
        let mut stages_of = vec![Vec::new(); p as usize];
        for (stage, rank) in rank_of.iter().enumerate() {
            stages_of[*rank].push(stage);
        }
        Self {
            durations: request.durations,
            kept: request.kept,
            limit: request.limit,
            m,
            num_stages,
            send: request.durations.send.get(),
            rank_of,
            stages_of,
            ends: [vec![NEVER; num_stages * m], vec![NEVER; num_stages * m]],
            begun: [vec![0; num_stages], vec![0; num_stages], vec![0; num_stages]],
            ranks: vec![State::default(); p as usize],
            now: 0,
            ways: ways(request.durations),
        }
    }

    /// The schedule that a policy makes; `None` if it deadlocks for lack of memory.
    pub(super) fn greedy(self, policy: &Policy) -> Option<Outcome> {
        self.run(|list, rank| list.choose(rank, policy))
    }

    /// Schedule with forwards and input gradients in the given order of each rank, and weight gradients where nothing
    /// else is ready or memory is short; `None` if the order deadlocks.
    pub(super) fn refill(self, order: &[Vec<Action>], patience: f64) -> Option<Outcome> {
        let mut next = vec![0; order.len()];
        self.run(|list, rank| {
            let choice = list.choose_in_order(rank, order[rank].get(next[rank]), patience);
            if matches!(choice, Choice::Begin(kind, _) if kind != ActionKind::WeightGrad) {
                next[rank] += 1;
            }
            choice
        })
    }

    fn run(mut self, mut choose: impl FnMut(&Self, usize) -> Choice) -> Option<Outcome> {
        let mut queue: BinaryHeap<Reverse<(u64, usize)>> =
            (0..self.ranks.len()).map(|rank| Reverse((0, rank))).collect();
        let mut left = 3 * self.num_stages * self.m;
        while left > 0 {
            let Reverse((time, rank)) = queue.pop()?;
            if time < self.ranks[rank].free {
                continue;
            }
            self.now = time;
            self.ranks[rank].is_parked = false;
            match choose(&self, rank) {
                Choice::Begin(kind, stage) => {
                    left -= 1;
                    if let Some(woken) = self.begin(rank, kind, stage) {
                        queue.push(Reverse(woken));
                    }
                    queue.push(Reverse((self.ranks[rank].free, rank)));
                }
                Choice::WaitUntil(time) => queue.push(Reverse((time, rank))),
                Choice::Park => self.ranks[rank].is_parked = true,
            }
        }
        let peak = self.ranks.iter().map(|state| state.peak).max()?;
        let makespan = Nanos::new(self.ranks.iter().map(|state| state.free).max()?);
        let mut times = Earliest { makespan, ranks: Vec::new(), ends: Vec::new() };
        let mut steps = Vec::new();
        for state in self.ranks {
            let [start, end, busy] =
                [state.start.unwrap_or(0), state.free, state.busy].map(Nanos::new);
            times.ranks.push(RankTimes { start, end, passes: busy, ..RankTimes::default() });
            times.ends.push(state.ends);
            steps.push(state.steps);
        }
        Some(Outcome { steps, times, peak })
    }

    /// Begins a pass. If a parked rank waits for it, returns the time from which that rank can go on, and the rank.
    fn begin(&mut self, rank: usize, kind: ActionKind, stage: usize) -> Option<(u64, usize)> {
        let StageMemory { activations, for_weight_grad } = self.kept;
        let pass = pass(kind);
        let micro_batch = self.begun[pass][stage];
        self.begun[pass][stage] += 1;
        let time = self.durations.stages[stage].of(kind).get();
        let end = self.now + time;
        let state = &mut self.ranks[rank];
        state.start.get_or_insert(self.now);
        state.free = end;
        state.busy += time;
        state.last = Some(kind);
        let (stage_id, micro_batch_id) = (stage as u32, micro_batch as u32);
        let action = Action { stage: stage_id, kind, micro_batch: micro_batch_id };
        state.steps.push(ScheduleStep::One(action));
        state.ends.push(Nanos::new(end));
        let user = match kind {
            ActionKind::Forward => {
                state.held += activations;
                state.peak = state.peak.max(state.held);
                Some(stage + 1).filter(|user| *user < self.num_stages)
            }
            ActionKind::InputGrad => {
                state.held -= activations - for_weight_grad;
                stage.checked_sub(1)
            }
            _ => {
                state.held -= for_weight_grad;
                return None;
            }
        };
        self.ends[pass][stage * self.m + micro_batch] = end;
        let user = self.rank_of[user?];
        let waits = user != rank && self.ranks[user].is_parked;
        waits.then(|| (end + self.send, user))
    }

    /// Time from which the next forward of a stage can begin, if that is known.
    fn forward(&self, stage: usize) -> Option<u64> {
        let micro_batch = self.begun[0][stage];
        if micro_batch >= self.m {
            return None;
        }
        let Some(before) = stage.checked_sub(1) else { return Some(0) };
        self.comes(0, before, stage, micro_batch)
    }

    /// Time from which the next input gradient of a stage can begin, if that is known.
    fn input_grad(&self, stage: usize) -> Option<u64> {
        let micro_batch = self.begun[1][stage];
        if micro_batch >= self.begun[0][stage] {
            return None;
        }
        let own = self.ends[0][stage * self.m + micro_batch];
        if stage + 1 == self.num_stages {
            return Some(own);
        }
        Some(own.max(self.comes(1, stage + 1, stage, micro_batch)?))
    }

    fn comes(&self, pass: usize, from: usize, to: usize, micro_batch: usize) -> Option<u64> {
        let end = self.ends[pass][from * self.m + micro_batch];
        let crosses = self.rank_of[from] != self.rank_of[to];
        (end != NEVER).then(|| end + if crosses { self.send } else { 0 })
    }

    /// The stage whose weight gradient has waited longest, and the number of weight gradients that wait.
    fn weight_grad(&self, rank: usize) -> (Option<usize>, u32) {
        let mut oldest = None;
        let mut waiting = 0;
        for stage in self.stages_of[rank].iter().copied() {
            let (done, ready) = (self.begun[2][stage], self.begun[1][stage]);
            waiting += (ready - done) as u32;
            if done < ready {
                let since = self.ends[1][stage * self.m + done];
                if oldest.is_none_or(|(time, _)| since < time) {
                    oldest = Some((since, stage));
                }
            }
        }
        (oldest.map(|(_, stage)| stage), waiting)
    }

    /// True if a forward of a stage fits in memory, and leaves enough for the same micro-batches on the rank's later
    /// stages, without which no memory is ever freed.
    fn fits(&self, rank: usize, stage: usize) -> bool {
        let later = self.stages_of[rank].iter().filter(|later| **later > stage);
        let behind = later.filter(|later| self.begun[0][**later] <= self.begun[0][stage]).count();
        let needed = self.kept.activations * (1 + behind as u64);
        self.ranks[rank].held + needed <= self.limit
    }

    fn choose(&self, rank: usize, policy: &Policy) -> Choice {
        let interval = match policy.preference {
            Preference::Due { interval, .. } => interval * self.pace(rank),
            _ => 0.0,
        };
        let ahead = match policy.preference {
            Preference::Due { ahead, .. } => ahead * interval,
            _ => 0.0,
        };
        let stages = || self.stages_of[rank].iter().rev().copied();
        let forwards = stages().filter(|stage| self.fits(rank, *stage)).filter_map(|stage| {
            let due = interval * self.begun[0][stage] as f64 + self.ways[0][stage];
            Some(Ready { time: self.forward(stage)?, stage, due })
        });
        let input_grads = stages().filter_map(|stage| {
            let due = interval * self.begun[1][stage] as f64 + self.ways[1][stage] - ahead;
            Some(Ready { time: self.input_grad(stage)?, stage, due })
        });
        let (forward, input_grad) = (self.first(forwards), self.first(input_grads));
        let (weight_grad, waiting) = self.weight_grad(rank);
        let is_now = |ready: &Ready| ready.time <= self.now;
        let is_cautious = |forward: &Ready, input_grad: &Ready| {
            let time = self.durations.stages[forward.stage].forward.as_f64();
            let begun = self.begun[1][input_grad.stage];
            !is_now(input_grad)
                && ((input_grad.time - self.now) as f64) < policy.caution * time
                && begun < policy.cautious_for as usize
        };
        let forward = match (forward, input_grad) {
            (Some(forward), Some(input_grad)) if is_cautious(&forward, &input_grad) => {
                Some(Ready { time: forward.time.max(input_grad.time), ..forward })
            }
            _ => forward,
        };
        let next = [forward, input_grad].into_iter().flatten().map(|ready| ready.time).min();
        let now = |ready: Option<Ready>| ready.filter(is_now);
        let (kind, ready) = match (now(forward), now(input_grad)) {
            (Some(forward), Some(input_grad)) => {
                let goes_forward = match policy.preference {
                    Preference::InputGrad => false,
                    Preference::Forward => true,
                    Preference::Alternate => self.ranks[rank].last != Some(ActionKind::Forward),
                    Preference::Due { .. } => forward.due < input_grad.due,
                };
                if goes_forward {
                    (ActionKind::Forward, forward)
                } else {
                    (ActionKind::InputGrad, input_grad)
                }
            }
            (Some(forward), None) => (ActionKind::Forward, forward),
            (None, Some(input_grad)) => (ActionKind::InputGrad, input_grad),
            (None, None) => return self.fill(next, weight_grad, rank, policy.patience),
        };
        match weight_grad {
            Some(stage) if kind == ActionKind::Forward && waiting >= policy.most_waiting => {
                Choice::Begin(ActionKind::WeightGrad, stage)
            }
            _ => Choice::Begin(kind, ready.stage),
        }
    }

    fn choose_in_order(&self, rank: usize, next: Option<&Action>, patience: f64) -> Choice {
        let (weight_grad, _) = self.weight_grad(rank);
        let Some(next) = next else {
            return self.fill(None, weight_grad, rank, 0.0);
        };
        let stage = next.stage as usize;
        let (kind, time) = match next.kind {
            ActionKind::Forward => (ActionKind::Forward, self.forward(stage)),
            _ => (ActionKind::InputGrad, self.input_grad(stage)),
        };
        let fits = self.ranks[rank].held + self.kept.activations <= self.limit;
        if kind == ActionKind::Forward && !fits {
            return match weight_grad {
                Some(stage) => Choice::Begin(ActionKind::WeightGrad, stage),
                None => Choice::Park,
            };
        }
        match time {
            Some(time) if time <= self.now => Choice::Begin(kind, stage),
            time => self.fill(time, weight_grad, rank, patience),
        }
    }

    /// Begins a waiting weight gradient if the next pass is not ready soon; else waits for that pass.
    fn fill(
        &self,
        next: Option<u64>,
        weight_grad: Option<usize>,
        rank: usize,
        patience: f64,
    ) -> Choice {
        let fills = |stage: usize| {
            let time = self.durations.stages[stage].weight_grad.as_f64();
            // Where a forward does not fit in memory, only a weight gradient frees memory.
            let is_full = self.ranks[rank].held + self.kept.activations > self.limit;
            is_full || next.is_none_or(|next| (next - self.now) as f64 >= patience * time)
        };
        match (weight_grad, next) {
            (Some(stage), _) if fills(stage) => Choice::Begin(ActionKind::WeightGrad, stage),
            (_, Some(next)) => Choice::WaitUntil(next),
            _ => Choice::Park,
        }
    }

    /// The pass that can begin first; of those that can begin now, the one that is due first.
    fn first(&self, ready: impl Iterator<Item = Ready>) -> Option<Ready> {
        ready.reduce(|best, next| {
            let key = |ready: &Ready| (ready.time.max(self.now), ready.due);
            if key(&next) < key(&best) { next } else { best }
        })
    }

    /// Time of all passes of one micro-batch on a rank.
    fn pace(&self, rank: usize) -> f64 {
        let stages = self.stages_of[rank].iter();
        stages.map(|stage| self.durations.stages[*stage].total().as_f64()).sum()
    }
}

/// Times from a micro-batch's start to each stage's forward and input gradient, with nothing else running.
fn ways(durations: &Durations) -> [Vec<f64>; 2] {
    let Durations { stages, send } = durations;
    let mut time = 0.0;
    let mut passed = |pass: Nanos| {
        let start = time;
        time += (pass + *send).as_f64();
        start
    };
    let down = stages.iter().map(|passes| passed(passes.forward)).collect();
    let mut up: Vec<f64> = stages.iter().rev().map(|passes| passed(passes.input_grad)).collect();
    up.reverse();
    [down, up]
}

fn pass(kind: ActionKind) -> usize {
    match kind {
        ActionKind::Forward => 0,
        ActionKind::InputGrad => 1,
        _ => 2,
    }
}
