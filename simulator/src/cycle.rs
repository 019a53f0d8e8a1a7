//! The periodic middle of a schedule: played once, and skipped as often as it repeats.
//!
//! A pipeline in full swing does the same again and again: between the warm-up and the drain each rank
//! repeats one cycle of actions with ever later micro-batches. Once every action comes exactly as much
//! later as one, two or a few cycles before, on all ranks, so it will in all cycles that follow: what an
//! action waits for lies no more than a few cycles back. So a step of many micro-batches is a step of few,
//! and the time of a cycle as often as there are more.
//!
//! # Source
//!
//! Baccelli et al. 1992, *Synchronization and Linearity*, section 3.7: such systems become periodic, over
//! one cycle or, where messages go back and forth, over several.

use ir::schedule::{Action, GenerateError, ScheduleKind, Step};
use ir::units::Nanos;

use crate::error::SimulationError;
use crate::order::{NONE, Op, Order, Pair, paired, steps_of_family};
use crate::play::{Background, Observer, Played, play, played};
use crate::transfers::RemainingWork;
use crate::work::Work;

/// A schedule of few micro-batches, and where a cycle can be put in as often as there are more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    order: Order,
    /// By rank.
    cuts: Vec<Cut>,
    /// How many cycles back at most lies what an action after the cut needs.
    depth: usize,
}

/// Place in a rank's order where cycles can be put in, and the number of actions of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    at: usize,
    length: usize,
}

/// Over how many cycles a pipeline is looked at to be periodic.
const MOST_CYCLES: usize = 4;

impl Cycle {
    /// The order of a family's few micro-batches, as [`Order::of_family`] has it. None where the family is
    /// not cyclic, or the micro-batches are too few.
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

    /// `short`, into which cycles of `period` micro-batches can be put. None if `longer`, the steps of each
    /// rank, is not `short` with one more cycle.
    pub fn new(short: Order, longer: &[Vec<Step>], period: u32) -> Option<Self> {
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

    /// The time of a step with so many more cycles; none if what was played is too short to have become
    /// periodic.
    ///
    /// # Errors
    ///
    /// As [`simulate`](crate::simulate).
    pub fn step_time(&self, work: &Work, repeats: u64) -> Result<Option<Nanos>, SimulationError> {
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

/// The time of a step that is played through to its end.
///
/// # Errors
///
/// As [`simulate`](crate::simulate).
pub fn step_time(order: &Order, work: &Work) -> Result<Nanos, SimulationError> {
    Ok(played(order, work)?.end)
}

/// Whether `other` is the same as `op` for a micro-batch that comes `period` later.
fn is_later(op: &Op, other: &Op, period: u32) -> bool {
    later(op.action(), period) == other.action() && op.pair == other.pair && op.user == other.user
}

/// The action for a micro-batch that comes `period` later.
fn later(action: Action, period: u32) -> Action {
    let shift = if action.kind.has_micro_batch() { period } else { 0 };
    Action { micro_batch: action.micro_batch + shift, ..action }
}

/// Where `longer` has one cycle more than `short`: a cycle before the two begin to differ, so that the
/// last actions of each kind come after it.
fn cut(short: &[Op], longer: &[Step], period: u32) -> Option<Cut> {
    // Messages follow what they send, and are in their place wherever that is.
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

/// How many cycles back what is needed lies at most; none where an action before the cut needs one after
/// it.
fn depth(order: &Order, cuts: &[Cut]) -> Option<usize> {
    // By result: on which rank it is made, and in which cycle, counting back from the cut.
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

/// Background of a rank's actions: what is left of its transfers and copies and since when that is known, and when
/// its last messages left and came, all from when its last action was over.
type State = (Vec<RemainingWork>, [i128; 3]);

/// Looks whether cycles follow each other at equal distances.
struct Cycles<'a> {
    cycle: &'a Cycle,
    /// By rank: when actions of the last cycles before the cut are over.
    times: Vec<Vec<Nanos>>,
    /// By rank: what goes on beside its actions at the cut, and so many cycles before it.
    beside: Vec<[State; MOST_CYCLES + 1]>,
}

impl<'a> Cycles<'a> {
    fn new(cycle: &'a Cycle) -> Self {
        let times = cycle.cuts.iter().map(|cut| Vec::with_capacity(cycle.kept() * cut.length));
        let beside = vec![Default::default(); cycle.cuts.len()];
        Self { cycle, times: times.collect(), beside }
    }

    /// The time of so many cycles together, if all that are looked at take equally long.
    fn time(&self, together: usize) -> Option<Nanos> {
        let mut time = None;
        for ((times, beside), cut) in self.times.iter().zip(&self.beside).zip(&self.cycle.cuts) {
            if beside[0] != beside[together] {
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
    /// Cycles before the cut that are looked at.
    const fn kept(&self) -> usize {
        self.depth + MOST_CYCLES
    }
}

impl Observer for Cycles<'_> {
    fn passed(&mut self, rank: usize, count: usize, time: Nanos, background: Background<'_>) {
        let cut = self.cycle.cuts[rank];
        let from = cut.at - self.cycle.kept() * cut.length;
        if count <= from || count > cut.at {
            return;
        }
        // A pair counts twice.
        self.times[rank].resize(count - from, time);
        let before = cut.at - count;
        if before.is_multiple_of(cut.length)
            && let Some(state) = self.beside[rank].get_mut(before / cut.length)
        {
            let (left, since) = background.transfers.state(time);
            let since_message = |message: Nanos| i128::from(message.get()) - i128::from(time.get());
            let [sent, received] = background.messages.map(since_message);
            *state = (left, [since, sent, received]);
        }
    }
}
