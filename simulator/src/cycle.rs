//! The periodic part of a schedule, simulated once and multiplied.
//!
//! The steady state of a pipeline is periodic: between warm-up and drain each rank repeats one cycle of actions with
//! ever later micro-batches. Suppose that every action on all ranks comes later than the same action one, two or a few
//! cycles before, and by the same time everywhere. Then this holds in all cycles that follow, as an action waits only
//! for actions a few cycles back. So a step of many micro-batches takes the time of a step of few, plus the time of a
//! cycle for each further cycle.
//!
//! # Source
//!
//! Baccelli et al. 1992, *Synchronization and Linearity*, section 3.7: such systems become periodic, over
//! one cycle or, where messages go back and forth, over several.

use ir::schedule::{Action, GenerateError, ScheduleKind, ScheduleStep};
use ir::units::Nanos;

use crate::error::SimulationError;
use crate::order::{NONE, Order, Pair, RankOp, paired, steps_of_family};
use crate::play::{InFlightTraffic, Observer, Played, play, played};
use crate::transfers::RemainingWork;
use crate::work::StepWork;

/// A schedule of few micro-batches, with the place where whole cycles can be inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    order: Order,
    /// Cut of each rank.
    cuts: Vec<Cut>,
    /// The largest number of cycles back to an action that an action after the cut needs.
    depth: usize,
}

/// Place in a rank's order where cycles can be inserted, and the number of actions of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    at: usize,
    length: usize,
}

/// The longest period that is looked for, in cycles.
const MOST_CYCLES: usize = 4;

impl Cycle {
    /// The order of a family with few micro-batches, as in [`Order::of_family`]. `None` where the family is not cyclic,
    /// or the micro-batches are too few.
    ///
    /// # Errors
    ///
    /// A family that does not take these numbers.
    pub fn of_family(
        kind: ScheduleKind,
        p: u32,
        m: u32,
        v: u32,
    ) -> Result<Option<Self>, GenerateError> {
        let Some(period) = kind.cycle(p) else { return Ok(None) };
        let longer = steps_of_family(kind, p, m + period, v)?;
        Ok(Self::new(Order::of_family(kind, p, m, v)?, &longer, period))
    }

    /// The order `short`, into which cycles of `period` micro-batches can be inserted. `None` if `longer`, the steps of
    /// each rank, is not `short` with one more cycle.
    pub fn new(short: Order, longer: &[Vec<ScheduleStep>], period: u32) -> Option<Self> {
        let ranks = short.ranks.iter().zip(longer);
        let cuts: Vec<Cut> = ranks.map(|(a, b)| cut(a, b, period)).collect::<Option<_>>()?;
        let depth = depth(&short, &cuts)?;
        let is_cyclic = short.ranks.iter().zip(&cuts).all(|(ops, cut)| {
            let Some(from) = cut.at.checked_sub((depth + MOST_CYCLES) * cut.length) else {
                return false;
            };
            (from..cut.at).all(|i| !ops[i].is_first && !ops[i].is_last)
                && (from..cut.at - cut.length)
                    .all(|i| is_later(&ops[i], &ops[i + cut.length], period))
        });
        is_cyclic.then_some(Self { order: short, cuts, depth })
    }

    /// The time of a step with `repeats` more cycles; `None` if the simulated part is too short to have become
    /// periodic.
    ///
    /// # Errors
    ///
    /// As [`simulate`](crate::simulate).
    pub fn step_time(
        &self,
        work: &StepWork,
        repeats: u64,
    ) -> Result<Option<Nanos>, SimulationError> {
        let mut cycles = Cycles::new(self);
        let Played { end, .. } = play(&self.order, work, &mut cycles)?;
        let repeated = |cycles_together: usize| {
            let times = repeats / cycles_together as u64;
            let is_whole = repeats.is_multiple_of(cycles_together as u64);
            is_whole.then(|| cycles.time(cycles_together)).flatten().map(|time| time * times)
        };
        Ok((1..=MOST_CYCLES).find_map(repeated).map(|time| end + time))
    }
}

/// The time of a step, simulated to its end.
///
/// # Errors
///
/// As [`simulate`](crate::simulate).
pub fn step_time(order: &Order, work: &StepWork) -> Result<Nanos, SimulationError> {
    Ok(played(order, work)?.end)
}

/// Returns whether `other` is the same operation as `op`, for a micro-batch that is `period` later.
fn is_later(op: &RankOp, other: &RankOp, period: u32) -> bool {
    later(op.action(), period) == other.action() && op.pair == other.pair && op.user == other.user
}

/// The action for a micro-batch that is `period` later.
fn later(action: Action, period: u32) -> Action {
    let shift = if action.kind.has_micro_batch() { period } else { 0 };
    Action { micro_batch: action.micro_batch + shift, ..action }
}

/// Cut of `short`, where `longer` has one cycle more. The cut is one cycle before the two begin to differ, so that the
/// last actions of each kind come after it.
fn cut(short: &[RankOp], longer: &[ScheduleStep], period: u32) -> Option<Cut> {
    // Messages follow the actions whose results they send, so their places need not be compared.
    let is_compared = |action: Action| !action.kind.is_send();
    let places = 0..short.len();
    let places: Vec<usize> = places.filter(|it| is_compared(short[*it].action())).collect();
    let short: Vec<(Action, Pair)> =
        places.iter().map(|it| (short[*it].action(), short[*it].pair)).collect();
    let longer: Vec<(Action, Pair)> =
        longer.iter().flat_map(paired).filter(|(action, _)| is_compared(*action)).collect();
    let length = longer.len().checked_sub(short.len()).filter(|length| *length > 0)?;
    let same = short.iter().zip(&longer).take_while(|(a, b)| a == b).count();
    let at = same.checked_sub(length)?;
    let mut ends = short[at..].iter().zip(&longer[at + length..]);
    let ends_alike = ends.all(|((action, pair), end)| (later(*action, period), *pair) == *end);
    let before = places[at.checked_sub(length)?];
    ends_alike.then(|| Cut { at: places[at], length: places[at] - before })
}

/// The largest number of cycles back to an action that another action needs; `None` where an action before the cut
/// needs one after it.
fn depth(order: &Order, cuts: &[Cut]) -> Option<usize> {
    // Cycle in which each result is made, counted back from the cut.
    let mut made = vec![0_isize; order.num_results()];
    let cycle = |cut: &Cut, index: usize| {
        let [index, at, length] = [index, cut.at, cut.length].map(usize::cast_signed);
        (index - at).div_euclid(length).min(0)
    };
    for (ops, cut) in order.ranks.iter().zip(cuts) {
        for (index, op) in ops.iter().enumerate().filter(|(_, op)| op.result != NONE) {
            made[op.result as usize] = cycle(cut, index);
        }
    }
    let mut depth = 1;
    for (ops, cut) in order.ranks.iter().zip(cuts) {
        for (index, op) in ops.iter().enumerate().filter(|(_, op)| op.need != NONE) {
            let (own, other) = (cycle(cut, index), made[op.need as usize]);
            if own < 0 && other == 0 {
                return None;
            }
            let needs = own - other;
            if index + cut.length >= cut.at {
                depth = depth.max(needs);
            }
        }
    }
    Some(depth.cast_unsigned())
}

/// Traffic in flight during a rank's actions: the remaining work of its transfers and copies, the time at which that
/// work is known, and the times at which its last messages left and arrived. All times are relative to the end of its
/// last action.
type TrafficState = (Vec<RemainingWork>, [i128; 3]);

/// Observer that checks whether cycles follow each other in equal intervals of time.
struct Cycles<'a> {
    cycle: &'a Cycle,
    /// End times of the actions in the last cycles before the cut, by rank.
    times: Vec<Vec<Nanos>>,
    /// Traffic of each rank at the cut, and up to `MOST_CYCLES` cycles before it.
    traffic: Vec<[TrafficState; MOST_CYCLES + 1]>,
}

impl<'a> Cycles<'a> {
    fn new(cycle: &'a Cycle) -> Self {
        let times = cycle.cuts.iter().map(|cut| Vec::with_capacity(cycle.kept() * cut.length));
        let traffic = vec![Default::default(); cycle.cuts.len()];
        Self { cycle, times: times.collect(), traffic }
    }

    /// Time of `together` cycles, if all that are compared take equally long.
    fn time(&self, together: usize) -> Option<Nanos> {
        let mut time = None;
        for ((times, traffic), cut) in self.times.iter().zip(&self.traffic).zip(&self.cycle.cuts) {
            if traffic[0] != traffic[together] {
                return None;
            }
            for (before, after) in times.iter().zip(&times[together * cut.length..]) {
                let between = *after - *before;
                if *time.get_or_insert(between) != between {
                    return None;
                }
            }
        }
        time
    }
}

impl Cycle {
    /// Number of cycles before the cut that are recorded.
    const fn kept(&self) -> usize {
        self.depth + MOST_CYCLES
    }
}

impl Observer for Cycles<'_> {
    fn passed(&mut self, rank: usize, count: usize, time: Nanos, traffic: InFlightTraffic<'_>) {
        let cut = self.cycle.cuts[rank];
        let from = cut.at - self.cycle.kept() * cut.length;
        if count <= from || count > cut.at {
            return;
        }
        // A pair counts as two actions.
        self.times[rank].resize(count - from, time);
        let before = cut.at - count;
        if before.is_multiple_of(cut.length)
            && let Some(state) = self.traffic[rank].get_mut(before / cut.length)
        {
            let (left, since) = traffic.transfers.state(time);
            let since_message = |message: Nanos| i128::from(message.get()) - i128::from(time.get());
            let [sent, received] = traffic.messages.map(since_message);
            *state = (left, [since, sent, received]);
        }
    }
}
