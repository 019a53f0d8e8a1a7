//! Replicas that update shared weights whenever they have gradients, and wait for no other.

use std::collections::{BTreeSet, VecDeque};

use ir::replication::Outstanding;
use ir::units::Nanos;

/// Weights that one server keeps for replicas. It serves one at a time: it takes a replica's gradients and
/// updates by them, or sends it the weights. Those that wait for weights get them first, in the order in which
/// they asked; else gradients are taken in the order in which they were there. Neither happens while it could
/// make gradients older than is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWeights {
    /// How long each replica computes gradients.
    pub compute: Vec<Nanos>,
    /// From when gradients are sent until the weights are updated by them.
    pub push: Nanos,
    /// How long weights are on their way to a replica.
    pub pull: Nanos,
    /// Updates by others, at most, between a replica's taking weights and its own update.
    pub staleness: u32,
}

/// An update of shared weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedUpdate {
    /// Whose gradients it was by.
    pub replica: usize,
    /// When it was done.
    pub end: Nanos,
    /// How many updates there had been since that replica took weights.
    pub age: u64,
}

/// Steady state of replicas that share weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// In what time there are as many updates as replicas, in the mean.
    pub step_time: Nanos,
    /// How old gradients are, in the mean.
    pub mean_age: f64,
    /// How old the oldest were.
    pub most_age: u64,
}

/// Updates of the slowest replica that are left out until all have settled, and over which that is taken.
const ROUNDS: [usize; 2] = [16, 48];

/// Updates by all, at most, that are played for that.
const MOST_UPDATES: usize = 1 << 20;

impl SharedWeights {
    /// In what time there are as many updates as replicas, where all `d` compute for as long as the first, `c`.
    ///
    /// The server serves `d` replicas one after the other, `s` for push and pull each, and no more than `S + 1` of
    /// them are about it at once, lest gradients get older than `S` updates:
    ///
    /// ```text
    /// max(c + s, d s, d (c + s) / (S + 1))
    /// ```
    pub fn step_time_of_equals(&self) -> Nanos {
        let served = self.push + self.pull;
        let alone = self.compute.first().map_or(Nanos::ZERO, |compute| *compute + served);
        let replicas = self.compute.len() as u64;
        let bounded = (alone * replicas).get().div_ceil(u64::from(self.staleness) + 1);
        alone.max(served * replicas).max(Nanos::new(bounded))
    }

    /// Steady state of the replicas, played through.
    pub fn steady_state(&self) -> SteadyState {
        let slowest = (0..self.compute.len()).max_by_key(|replica| self.compute[*replica]);
        let mut seen = 0;
        let mut updates: Vec<SharedUpdate> = Vec::new();
        // From one update of the slowest to another, so that whole rounds are counted.
        let mut whole = 0..0;
        for update in self.updates().take(MOST_UPDATES) {
            updates.push(update);
            if Some(update.replica) == slowest {
                seen += 1;
                whole.end = updates.len();
                if seen == ROUNDS[0] {
                    whole.start = updates.len();
                }
            }
            if seen == ROUNDS[0] + ROUNDS[1] {
                break;
            }
        }
        let before = updates[..whole.start].last().map_or(Nanos::ZERO, |update| update.end);
        let settled = &updates[whole];
        let after = settled.last().map_or(before, |update| update.end);
        let count = settled.len().max(1) as f64;
        let steps = count / self.compute.len() as f64;
        SteadyState {
            step_time: Nanos::new(((after - before).as_f64() / steps).round() as u64),
            mean_age: settled.iter().map(|update| update.age as f64).sum::<f64>() / count,
            most_age: updates.iter().map(|update| update.age).max().unwrap_or_default(),
        }
    }

    /// All updates, one after the other and without end; none where there is no replica. At first all replicas
    /// ask for weights.
    pub fn updates(&self) -> impl Iterator<Item = SharedUpdate> {
        let mut server = Server {
            weights: self,
            now: Nanos::ZERO,
            outstanding: Outstanding::default(),
            asked: (0..self.compute.len()).collect(),
            computed: BTreeSet::new(),
        };
        std::iter::from_fn(move || server.next_update())
    }
}

/// The server at a moment when it is free.
struct Server<'a> {
    weights: &'a SharedWeights,
    now: Nanos,
    outstanding: Outstanding,
    /// Replicas that wait for weights, in the order in which they asked.
    asked: VecDeque<usize>,
    /// Replicas that have weights, and when their gradients are there.
    computed: BTreeSet<(Nanos, usize)>,
}

impl Server<'_> {
    fn next_update(&mut self) -> Option<SharedUpdate> {
        let SharedWeights { compute, push, pull, staleness } = self.weights;
        loop {
            if self.outstanding.may_take(*staleness)
                && let Some(replica) = self.asked.pop_front()
            {
                self.outstanding.take(replica as u32);
                self.now += *pull;
                self.computed.insert((self.now + compute[replica], replica));
                continue;
            }
            let there = self.computed.iter().take_while(|(since, _)| *since <= self.now);
            let may = |replica: usize| self.outstanding.may_apply(replica as u32, *staleness);
            let next = there.copied().find(|(_, replica)| may(*replica));
            if let Some(next @ (_, replica)) = next {
                self.computed.remove(&next);
                self.now += *push;
                self.asked.push_back(replica);
                let age = self.outstanding.apply(replica as u32);
                return Some(SharedUpdate { replica, end: self.now, age });
            }
            // Whoever is next to be there may be the one for whom others wait.
            let later = self.computed.range((self.now, usize::MAX)..).next()?;
            self.now = later.0;
        }
    }
}
