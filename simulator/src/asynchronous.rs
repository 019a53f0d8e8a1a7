//! Asynchronous replicas: each updates shared weights whenever it has gradients, without waiting for the others.

use std::collections::{BTreeSet, VecDeque};

use ir::replication::Outstanding;
use ir::units::Nanos;

/// Weights that one server holds for replicas. It serves one replica at a time: it either receives the replica's
/// gradients and updates the weights, or sends it the weights. Requests for weights go first, in the order in which
/// they came; then gradients are taken in the order in which they were ready. Neither happens while it could make
/// gradients older than the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWeights {
    /// Time that each replica computes gradients.
    pub compute: Vec<Nanos>,
    /// Time to send gradients and update the weights by them.
    pub push: Nanos,
    /// Time to send the weights to a replica.
    pub pull: Nanos,
    /// Limit on the updates by other replicas between a replica's receipt of weights and its own update.
    pub staleness: u32,
}

/// An update of shared weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedUpdate {
    /// Index of the replica whose gradients were applied.
    pub replica: usize,
    /// End of the update.
    pub end: Nanos,
    /// Number of updates since that replica received its weights.
    pub age: u64,
}

/// Steady state of replicas that share weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// Mean time in which there are as many updates as replicas.
    pub step_time: Nanos,
    /// Mean age of gradients, in updates.
    pub mean_age: f64,
    /// Age of the oldest gradients, in updates.
    pub most_age: u64,
}

/// Numbers of updates of the slowest replica that are left out as warm-up, and that are measured.
const ROUNDS: [usize; 2] = [16, 48];

/// Largest number of updates, by all replicas, that are simulated for the steady state.
const MOST_UPDATES: usize = 1 << 20;

impl SharedWeights {
    /// Time in which there are as many updates as replicas, where all `d` replicas compute for as long as the first, a
    /// time `c`.
    ///
    /// The server serves `d` replicas one after the other, each in a time `s` for push and pull together. At most
    /// `S + 1` replicas are in flight, so that no gradients become older than `S` updates:
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

    /// Steady state of the replicas, by simulation.
    pub fn steady_state(&self) -> SteadyState {
        let slowest = (0..self.compute.len()).max_by_key(|replica| self.compute[*replica]);
        let mut seen = 0;
        let mut updates: Vec<SharedUpdate> = Vec::new();
        // The range is from one update of the slowest replica to another, so that whole rounds are counted.
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
        // A replica that has not updated by now is too slow to take part in the mean.
        if seen == 0 {
            whole.end = updates.len();
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

    /// Iterator over all updates, without end; empty where there is no replica. At first all replicas ask for weights.
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

/// State of the server when it is free.
struct Server<'a> {
    weights: &'a SharedWeights,
    now: Nanos,
    outstanding: Outstanding,
    /// Replicas that wait for weights, in the order in which they asked.
    asked: VecDeque<usize>,
    /// Replicas with weights, by the time at which their gradients are ready.
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
            // The replica that is ready next may be the one for which others wait.
            let later = self.computed.range((self.now, usize::MAX)..).next()?;
            self.now = later.0;
        }
    }
}
