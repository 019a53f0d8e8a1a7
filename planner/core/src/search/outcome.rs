//! The outcome of a search.

use std::collections::BTreeMap;
use std::sync::Arc;

use ir::layout::{Layout, LayoutError};
use ir::units::{Bytes, Nanos, Seconds};

use super::evaluated_plan::EvaluatedPlan;
use super::request::StopReason;
use super::space::Rejection;

/// Result of a search: the plans found, and statistics of the search.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The best plans, fastest first.
    pub plans: Vec<EvaluatedPlan>,
    /// Numbers of candidates by outcome.
    pub counts: CandidateCounts,
    /// Numbers of candidates, or of combinations of degrees, that were left out, by reason.
    pub rejected: BTreeMap<Rejection, u64>,
    /// The layout that exceeds the memory least, if none fits.
    pub closest: Option<EvaluatedPlan>,
    /// The fastest plan that fits only with less headroom, if the model can tell that it is faster.
    pub with_less_headroom: Option<WithLessHeadroom>,
    /// Reason why a requested layout is not possible.
    pub invalid: Option<LayoutError>,
    /// Reason why the search stopped.
    pub stop_reason: StopReason,
    /// Lower bound of the layouts that were not looked at, if there are any.
    pub least_left: Option<Seconds>,
}

/// A plan that fits only with less headroom than is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct WithLessHeadroom {
    /// The plan, evaluated with that headroom.
    pub found: EvaluatedPlan,
    /// The headroom.
    pub headroom: Bytes,
}

impl Outcome {
    /// This outcome; or the outcome of an earlier search, if this one stopped before it found a plan as fast.
    #[must_use]
    pub fn or_earlier(self, earlier: Option<Self>) -> Self {
        let time = |it: &Self| it.plans.first().map(|plan| Nanos::from(plan.evaluation.step_time));
        let Some(earlier) = earlier.filter(|_| self.stop_reason != StopReason::Exhausted) else {
            return self;
        };
        if time(&self).is_none_or(|own| time(&earlier).is_some_and(|its| its < own)) {
            return Self { stop_reason: self.stop_reason, ..earlier };
        }
        let least = self.least_left.into_iter().chain(earlier.least_left);
        Self { least_left: least.min_by(Seconds::total_cmp), ..self }
    }

    /// Empty result, as the requested layout is not possible.
    pub(super) fn impossible(error: LayoutError) -> Self {
        Self { invalid: Some(error), ..Self::default() }
    }
}

/// Numbers of candidates by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CandidateCounts {
    /// Layouts that the model, the batch and the GPUs allow.
    pub candidates: u64,
    /// Candidates that were simulated.
    pub played: u64,
    /// Candidates excluded by a lower bound on time.
    pub pruned_by_time: u64,
    /// Candidates whose memory was computed and exceeds the limit.
    pub too_large: u64,
    /// Candidates excluded by a lower bound on memory.
    pub pruned_by_memory: u64,
    /// Candidates whose replicas in groups of unlike GPUs cannot divide the batch.
    pub undivided: u64,
    /// Candidates not yet looked at when the search was stopped.
    pub open: u64,
}

impl CandidateCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.candidates += other.candidates;
        self.played += other.played;
        self.pruned_by_time += other.pruned_by_time;
        self.too_large += other.too_large;
        self.pruned_by_memory += other.pruned_by_memory;
        self.undivided += other.undivided;
        self.open += other.open;
    }

    /// Counts a candidate that does not fit: its memory was computed, or only bounded.
    pub(super) fn add_misfit(&mut self, is_counted: bool) {
        if is_counted {
            self.too_large += 1;
        } else {
            self.pruned_by_memory += 1;
        }
    }

    /// Number of candidates that are settled.
    pub(super) fn done(&self) -> u64 {
        self.evaluated() + self.pruned() + self.undivided
    }

    /// Number of candidates whose time or memory was computed.
    pub fn evaluated(&self) -> u64 {
        self.played + self.too_large
    }

    /// Number of candidates excluded by a bound.
    pub fn pruned(&self) -> u64 {
        self.pruned_by_time + self.pruned_by_memory
    }
}

/// A layout that was simulated and fits, with the ends of its stages.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) time: Nanos,
    pub(super) layout: Layout,
    pub(super) ends: Arc<[usize]>,
}

/// The best plans so far.
pub(super) struct Best {
    top: usize,
    /// Time above which a layout cannot be among the best.
    most: Nanos,
    pub(super) plans: Vec<Candidate>,
}

impl Best {
    /// The best plans among those that take no longer than `most`.
    pub(super) const fn below(top: usize, most: Nanos) -> Self {
        Self { top, most, plans: Vec::new() }
    }

    /// Time above which a plan is not among the best.
    pub(super) fn limit(&self) -> Nanos {
        match self.plans.last() {
            Some(worst) if self.plans.len() >= self.top => worst.time.min(self.most),
            _ => self.most,
        }
    }

    /// Inserts a plan in order: faster plans first; of equally fast plans, the smaller layout first.
    pub(super) fn offer(&mut self, plan: Candidate) {
        let key = |plan: &Candidate| (plan.time, plan.layout);
        let position = self.plans.partition_point(|other| key(other) < key(&plan));
        if position < self.top {
            self.plans.insert(position, plan);
            self.plans.truncate(self.top);
        }
    }
}
