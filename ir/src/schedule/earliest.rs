//! When each action could start at the earliest, in whole units of time: the yardstick of tests and
//! closed forms. The `simulator` does the same with links, streams and memory.

use std::collections::VecDeque;

use super::{Action, ActionKind, Need, Pass, Schedule, Step};

/// What actions cost, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A forward.
    pub forward: u64,
    /// A gradient of activations.
    pub input_grad: u64,
    /// A gradient of parameters. A full backward is the sum of its parts.
    pub weight_grad: u64,
    /// From the end of an action on one rank to when another rank has its result.
    pub send: u64,
}

impl Costs {
    /// One unit for each, and nothing for sends.
    pub const UNIT: Self = Self { forward: 1, input_grad: 1, weight_grad: 1, send: 0 };

    /// The cost of an action; messages and what concerns whole stages cost nothing here.
    pub fn of(&self, kind: ActionKind) -> u64 {
        match kind {
            ActionKind::Forward => self.forward,
            ActionKind::Backward => self.input_grad + self.weight_grad,
            ActionKind::InputGrad => self.input_grad,
            ActionKind::WeightGrad => self.weight_grad,
            _ => 0,
        }
    }
}

/// What a schedule takes if every action starts as soon as it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// From time zero to the end of the last action.
    pub makespan: u64,
    /// Each rank's part in it.
    pub ranks: Vec<RankUse>,
    /// When each step of each rank ends.
    pub(super) ends: Vec<Vec<u64>>,
}

/// When a rank works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankUse {
    /// When its first action starts.
    pub start: u64,
    /// When its last action ends.
    pub end: u64,
    /// How long it computes.
    pub busy: u64,
}

impl Evaluation {
    /// The share of idle time from time zero over the whole step, of all ranks together.
    pub fn bubble_fraction(&self) -> f64 {
        let busy: u64 = self.ranks.iter().map(|rank| rank.busy).sum();
        1.0 - busy as f64 / (self.makespan.max(1) * self.ranks.len().max(1) as u64) as f64
    }

    /// The share of idle time between a rank's first action and its last, of the rank that takes
    /// longest: what the zero-bubble papers report.
    pub fn bubble_from_first_action(&self) -> f64 {
        let span = |rank: &RankUse| rank.end - rank.start;
        let longest = self.ranks.iter().max_by_key(|rank| span(rank));
        longest.map_or(0.0, |rank| 1.0 - rank.busy as f64 / span(rank).max(1) as f64)
    }
}

/// Starts every step as early as its rank's order and its data allow.
///
/// Messages cost no rank time: data is there [`Costs::send`] after its action's end, whether or not
/// sends and receives are part of the schedule. An overlapped pair is costed as its parts in
/// sequence, each from when its own data is there.
pub fn evaluate(schedule: &Schedule, costs: Costs) -> Evaluation {
    earliest(schedule, costs, Pairs::InSequence)
}

/// When the parts of an overlapped pair start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pairs {
    /// Each when its own data is there.
    InSequence,
    /// None before the data of both is there.
    Together,
}

pub(super) fn earliest(schedule: &Schedule, costs: Costs, pairs: Pairs) -> Evaluation {
    let num_ranks = schedule.ranks().len();
    let num_pairs = schedule.num_stages() as usize * schedule.num_micro_batches() as usize;
    let mut run = Run { schedule, costs, ends: vec![[NEVER; 2]; num_pairs] };
    let mut ends: Vec<Vec<u64>> =
        schedule.ranks().iter().map(|steps| Vec::with_capacity(steps.len())).collect();
    let mut ranks = vec![RankUse::default(); num_ranks];
    let mut queue: VecDeque<usize> = (0..num_ranks).collect();
    while let Some(rank) = queue.pop_front() {
        while let Some(step) = schedule.ranks()[rank].get(ends[rank].len())
            && let Some(together) = run.ready(rank as u32, *step)
        {
            if pairs == Pairs::Together {
                ranks[rank].end = ranks[rank].end.max(together);
            }
            for (part, action) in step.actions().enumerate() {
                let ready = run.ready(rank as u32, Step::One(action)).unwrap_or(together);
                let start = ranks[rank].end.max(ready);
                if ends[rank].is_empty() && part == 0 {
                    ranks[rank].start = start;
                }
                ranks[rank].busy += costs.of(action.kind);
                ranks[rank].end = start + costs.of(action.kind);
                queue.extend(run.finish(action, ranks[rank].end));
            }
            ends[rank].push(ranks[rank].end);
        }
    }
    let makespan = ranks.iter().map(|rank| rank.end).max().unwrap_or(0);
    Evaluation { makespan, ranks, ends }
}

/// The end of what has not been done.
const NEVER: u64 = u64::MAX;

struct Run<'a> {
    schedule: &'a Schedule,
    costs: Costs,
    /// When forward and backward of each stage and micro-batch end.
    ends: Vec<[u64; 2]>,
}

impl Run<'_> {
    /// When the step's data is there; none while some of it is not made.
    fn ready(&self, rank: u32, step: Step) -> Option<u64> {
        step.actions().filter_map(|action| self.schedule.need(action)).try_fold(0, |ready, need| {
            let end = self.ends[self.index(need)][need.pass as usize];
            let crosses = self.schedule.rank(need.stage, need.micro_batch) != rank;
            let delay = if crosses { self.costs.send } else { 0 };
            (end != NEVER).then(|| ready.max(end + delay))
        })
    }

    /// Notes that an action is done, and says which rank may have waited for it.
    fn finish(&mut self, action: Action, end: u64) -> Option<usize> {
        let Action { stage, micro_batch, kind } = action;
        let (pass, user) = match kind {
            ActionKind::Forward => (Pass::Forward, stage + 1),
            ActionKind::Backward | ActionKind::InputGrad => {
                (Pass::Backward, stage.checked_sub(1).unwrap_or(u32::MAX))
            }
            _ => return None,
        };
        let index = self.index(Need { stage, micro_batch, pass });
        self.ends[index][pass as usize] = end;
        let is_used = user < self.schedule.num_stages();
        is_used.then(|| self.schedule.rank(user, micro_batch) as usize)
    }

    fn index(&self, need: Need) -> usize {
        need.stage as usize * self.schedule.num_micro_batches() as usize + need.micro_batch as usize
    }
}
