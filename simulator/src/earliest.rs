//! Schedules on a timeline if actions only compute and messages are delays.

use ir::schedule::Schedule;
use ir::units::Nanos;

use crate::order::{Op, Order};
use crate::play::{Observer, Played, RankTimes, play};
use crate::{Durations, Work};

/// Earliest times of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earliest {
    /// From time zero to the end of the last action.
    pub makespan: Nanos,
    /// Each rank's part in it.
    pub ranks: Vec<RankTimes>,
    /// When each pass of each rank ends.
    pub ends: Vec<Vec<Nanos>>,
}

impl Earliest {
    /// The share of idle time from time zero over the whole step, of all ranks together.
    pub fn bubble_fraction(&self) -> f64 {
        let busy: Nanos = self.ranks.iter().map(|rank| rank.passes).sum();
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
            .map_or(0.0, |rank| 1.0 - rank.passes.as_f64() / rank.span().as_f64())
    }
}

/// Starts every action as early as its rank's order and its data allow.
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
    let order = Order::new(schedule);
    let work = Work::plain(durations, schedule.num_ranks());
    let mut ends = PassEnds(order.ranks.iter().map(|ops| Vec::with_capacity(ops.len())).collect());
    let played = play(&order, &work, &mut ends);
    let Played { end, ranks } = played.expect("a checked schedule without collectives ends");
    Earliest { makespan: end, ranks, ends: ends.0 }
}

/// Notes when passes end.
struct PassEnds(Vec<Vec<Nanos>>);

impl Observer for PassEnds {
    fn ends(&mut self, rank: usize, op: &Op, now: Nanos) {
        if op.kind.is_compute() {
            self.0[rank].push(now);
        }
    }
}
