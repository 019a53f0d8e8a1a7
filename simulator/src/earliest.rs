//! When each action starts if every rank goes on as soon as it can: compute and delays alone, without
//! links, collectives or memory. One pass over the actions, so it is what a search can afford.

use ir::schedule::{Action, ActionKind, Placement, Schedule, Step};
use ir::units::Nanos;

use crate::Durations;

/// When everything happens at the earliest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earliest {
    /// From time zero to the end of the last action.
    pub makespan: Nanos,
    /// Each rank's part in it.
    pub ranks: Vec<RankUse>,
    /// When each step of each rank ends.
    pub ends: Vec<Vec<Nanos>>,
}

/// When a rank works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankUse {
    /// When its first pass starts; receives before it are open from the beginning.
    pub start: Nanos,
    /// When its last action ends.
    pub end: Nanos,
    /// How long it computes.
    pub busy: Nanos,
}

impl RankUse {
    /// From its first pass to the end of its last action.
    pub fn span(&self) -> Nanos {
        self.end - self.start
    }
}

impl Earliest {
    /// The share of idle time from time zero over the whole step, of all ranks together.
    pub fn bubble_fraction(&self) -> f64 {
        let busy: Nanos = self.ranks.iter().map(|rank| rank.busy).sum();
        // As floats, since ranks times makespan may exceed 64 bits.
        let all = self.makespan.as_f64() * self.ranks.len() as f64;
        if all > 0.0 { 1.0 - busy.as_f64() / all } else { 0.0 }
    }

    /// The share of idle time between a rank's first action and its last, of the rank that takes
    /// longest: what the zero-bubble papers report.
    pub fn bubble_from_first_action(&self) -> f64 {
        let longest = self.ranks.iter().max_by_key(|rank| rank.span());
        longest
            .filter(|rank| rank.span() > Nanos::ZERO)
            .map_or(0.0, |rank| 1.0 - rank.busy.as_f64() / rank.span().as_f64())
    }
}

/// Starts every step as early as its rank's order and its data allow.
///
/// Messages cost no rank time: data is there [`Durations::send`] after its action's end, whether or
/// not sends and receives are part of the schedule. An overlapped pair takes as long as its parts in
/// sequence, each from when its own data is there.
///
/// # Panics
///
/// If `durations` has fewer stages than `schedule`.
pub fn earliest(schedule: &Schedule, durations: &Durations) -> Earliest {
    let num_stages = schedule.num_stages() as usize;
    assert!(durations.stages.len() >= num_stages, "every stage has durations");
    earliest_with(schedule, |_, action| durations.of(action), |_| durations.send)
}

/// As [`earliest`], with the time of each action on its rank asked for once, a rank's actions in their
/// order; and for each action whose data comes from another rank, how long that takes to come.
pub(crate) fn earliest_with(
    schedule: &Schedule,
    duration: impl FnMut(u32, Action) -> Nanos,
    delay: impl Fn(Action) -> Nanos,
) -> Earliest {
    let mut run = Run::new(schedule, duration, delay);
    let mut queue: Vec<u32> = (0..schedule.num_ranks()).rev().collect();
    while let Some(rank) = queue.pop() {
        run.advance(rank, &mut queue);
    }
    let Run { ranks, ends, .. } = run;
    let makespan = ranks.iter().map(|rank| rank.end).max().unwrap_or(Nanos::ZERO);
    Earliest { makespan, ranks, ends }
}

/// The end of what has not been done.
const NEVER: Nanos = Nanos::new(u64::MAX);

/// A rank that waits for nothing.
const NOTHING: usize = usize::MAX;

struct Run<'a, D, S> {
    steps: &'a [Vec<Step>],
    duration: D,
    delay: S,
    num_micro_batches: usize,
    num_stages: usize,
    routes: Routes,
    /// When forward and backward of each stage and micro-batch end; see [`Run::slot`].
    done: Vec<Nanos>,
    /// Which of `done` a rank waits for.
    waits_for: Vec<usize>,
    ranks: Vec<RankUse>,
    /// Ranks that have computed.
    has_computed: Vec<bool>,
    ends: Vec<Vec<Nanos>>,
}

impl<'a, D: FnMut(u32, Action) -> Nanos, S: Fn(Action) -> Nanos> Run<'a, D, S> {
    fn new(schedule: &'a Schedule, duration: D, delay: S) -> Self {
        let steps = schedule.ranks();
        let (num_stages, num_micro_batches) =
            (schedule.num_stages() as usize, schedule.num_micro_batches() as usize);
        Self {
            steps,
            duration,
            delay,
            num_micro_batches,
            num_stages,
            routes: Routes::new(schedule),
            done: vec![NEVER; 2 * num_stages * num_micro_batches],
            waits_for: vec![NOTHING; steps.len()],
            ranks: vec![RankUse::default(); steps.len()],
            has_computed: vec![false; steps.len()],
            ends: steps.iter().map(|steps| Vec::with_capacity(steps.len())).collect(),
        }
    }

    /// Takes steps of `rank` until one must wait; puts ranks that waited for them into `queue`.
    fn advance(&mut self, rank: u32, queue: &mut Vec<u32>) {
        let index = rank as usize;
        let steps = self.steps;
        let RankUse { mut start, mut end, mut busy } = self.ranks[index];
        let mut ends = std::mem::take(&mut self.ends[index]);
        self.waits_for[index] = NOTHING;
        'steps: for step in &steps[index][ends.len()..] {
            let (first, second) = match *step {
                Step::One(action) => (action, None),
                Step::Overlapped(forward, backward) => (forward, Some(backward)),
            };
            // A pair starts once the data of both is known to come.
            for action in std::iter::once(first).chain(second) {
                if let Some((slot, _)) = self.need(action)
                    && self.done[slot] == NEVER
                {
                    self.waits_for[index] = slot;
                    break 'steps;
                }
            }
            for action in std::iter::once(first).chain(second) {
                let ready =
                    self.need(action).map_or(Nanos::ZERO, |(slot, delay)| self.done[slot] + delay);
                let begin = end.max(ready);
                if action.kind.is_compute() && !self.has_computed[index] {
                    self.has_computed[index] = true;
                    start = begin;
                }
                let duration = (self.duration)(rank, action);
                end = begin + duration;
                busy += duration;
                if let Some((slot, user)) = self.gives(action) {
                    self.done[slot] = end;
                    if self.waits_for[user as usize] == slot {
                        self.waits_for[user as usize] = NOTHING;
                        queue.push(user);
                    }
                }
            }
            ends.push(end);
        }
        self.ranks[index] = RankUse { start, end, busy };
        self.ends[index] = ends;
    }

    /// What `action` needs of a neighbouring stage, and how long that takes to come.
    fn need(&self, action: Action) -> Option<(usize, Nanos)> {
        let Action { stage, micro_batch, kind } = action;
        let (from, is_backward) = match kind {
            ActionKind::Forward => (stage.checked_sub(1)?, false),
            ActionKind::Backward | ActionKind::InputGrad => (stage + 1, true),
            _ => return None,
        };
        let is_crossed = self.routes.is_crossed.get(from.min(stage) as usize)?;
        let comes_from_afar = is_crossed[(micro_batch & 1) as usize];
        let delay = if comes_from_afar { (self.delay)(action) } else { Nanos::ZERO };
        Some((self.slot(from, micro_batch, is_backward), delay))
    }

    /// Where the end of `action` is noted, and which rank has use for it.
    fn gives(&self, action: Action) -> Option<(usize, u32)> {
        let Action { stage, micro_batch, kind } = action;
        let parity = (micro_batch & 1) as usize;
        let (user, is_backward) = match kind {
            ActionKind::Forward => ((stage as usize + 1).min(self.num_stages - 1), false),
            ActionKind::Backward | ActionKind::InputGrad => {
                ((stage as usize).saturating_sub(1), true)
            }
            _ => return None,
        };
        Some((self.slot(stage, micro_batch, is_backward), self.routes.ranks[user][parity]))
    }

    fn slot(&self, stage: u32, micro_batch: u32, is_backward: bool) -> usize {
        let pass = stage as usize * 2 + usize::from(is_backward);
        pass * self.num_micro_batches + micro_batch as usize
    }
}

/// Where stages are, for even and for odd micro-batches: no [`Placement`] tells more apart.
struct Routes {
    /// The rank of each stage.
    ranks: Vec<[u32; 2]>,
    /// Whether the next stage is on another rank.
    is_crossed: Vec<[bool; 2]>,
}

impl Routes {
    fn new(schedule: &Schedule) -> Self {
        let p = schedule.num_ranks();
        let placement: &Placement = schedule.placement();
        let rank = |stage, parity| {
            placement.rank(p, stage, parity).expect("a checked schedule places every stage")
        };
        let ranks: Vec<[u32; 2]> = (0..schedule.num_stages())
            .map(|stage| [0, 1].map(|parity| rank(stage, parity)))
            .collect();
        let is_crossed = ranks
            .windows(2)
            .map(|pair| [0, 1].map(|parity| pair[0][parity] != pair[1][parity]))
            .collect();
        Self { ranks, is_crossed }
    }
}
