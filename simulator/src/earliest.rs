//! Earliest times of a schedule where actions only compute and messages are delays.

use ir::schedule::Schedule;
use ir::units::Nanos;

use crate::order::{Order, RankOp};
use crate::play::{Observer, Played, RankTimes, play};
use crate::{Durations, StepWork};

/// Earliest times of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earliest {
    /// Time from zero to the end of the last action.
    pub makespan: Nanos,
    /// Breakdown of each rank's time.
    pub ranks: Vec<RankTimes>,
    /// End of each pass, by rank.
    pub ends: Vec<Vec<Nanos>>,
}

impl Earliest {
    /// Share of idle time from time zero over the whole step, of all ranks together.
    pub fn bubble_fraction(&self) -> f64 {
        let busy: Nanos = self.ranks.iter().map(|rank| rank.passes).sum();
        // The product is in floating point, as ranks times makespan may exceed 64 bits.
        let all = self.makespan.as_f64() * self.ranks.len() as f64;
        if all > 0.0 { 1.0 - busy.as_f64() / all } else { 0.0 }
    }

    /// Share of idle time between the first and the last action of the rank that takes longest, as the zero-bubble
    /// papers report.
    pub fn bubble_from_first_action(&self) -> f64 {
        let longest = self.ranks.iter().max_by_key(|rank| rank.span());
        longest
            .filter(|rank| rank.span() > Nanos::ZERO)
            .map_or(0.0, |rank| 1.0 - rank.passes.as_f64() / rank.span().as_f64())
    }
}

/// Starts every action as early as its rank's order and its data allow.
///
/// Messages cost no rank time: data arrives [`Durations::send`] after the end of its action, whether or not sends and
/// receives are part of the schedule. An overlapped pair takes as long as its parts in sequence, each from the arrival
/// of its own data.
///
/// # Panics
///
/// If `durations` has fewer stages than `schedule`.
pub fn earliest(schedule: &Schedule, durations: &Durations) -> Earliest {
    let num_stages = schedule.num_stages() as usize;
    assert!(durations.stages.len() >= num_stages, "every stage has durations");
    let order = Order::new(schedule);
    let work = StepWork::plain(durations, schedule.num_ranks());
    let mut ends = PassEnds(order.ranks.iter().map(|ops| Vec::with_capacity(ops.len())).collect());
    let played = play(&order, &work, &mut ends);
    let Played { end, ranks } = played.expect("a checked schedule without collectives ends");
    Earliest { makespan: end, ranks, ends: ends.0 }
}

/// Observer that records the ends of passes.
struct PassEnds(Vec<Vec<Nanos>>);

impl Observer for PassEnds {
    fn ends(&mut self, rank: usize, op: &RankOp, now: Nanos) {
        if op.kind.is_compute() {
            self.0[rank].push(now);
        }
    }
}
