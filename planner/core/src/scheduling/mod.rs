//! Pipeline schedules made for given costs: unequal stages and passes, messages that take time, and a memory limit.
//!
//! A list scheduler goes through time; whenever a rank is free it begins one of the actions that are ready, by its
//! policy. Two kinds of policy are tried, with many settings of each: greedy ones, and the order of forwards and input
//! gradients of a named family, with weight gradients filled into the gaps. Local search improves the best. The named
//! families are among the candidates, so the result is never worse than the best of them that fits.

mod list;
mod local;
mod policy;
mod request;

use std::sync::Arc;

use ir::schedule::{Action, ActionKind, Schedule, ScheduleKind, StagePlacement, generate};
use ir::units::{Bytes, Nanos};
use rayon::prelude::*;
use simulator::{ActivationBytes, Durations, Earliest, Order, earliest, peak_memory};

use list::{List, Outcome, score};
use policy::Policy;
use request::Score;
pub use request::{SchedulingError, SchedulingRequest, StageMemory};

/// A schedule made for given costs.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The order of actions, computation only.
    pub schedule: Schedule,
    /// Times of all actions.
    pub times: Earliest,
    /// The most memory that any rank holds, in the unit of [`StageMemory`].
    pub peak: u64,
    /// The family whose order it has or starts from; `None` if a greedy policy made it.
    pub family: Option<ScheduleKind>,
}

/// The shortest schedule found: by makespan, then by the longest time from a rank's first action to its last, then by
/// peak memory. The result is the same for the same request on any number of threads.
///
/// # Errors
///
/// [`SchedulingError`].
///
/// # Source
///
/// Qi et al. 2023, *Zero bubble pipeline parallelism* (arXiv 2401.10241), section 3.1 and appendix: a
/// greedy order with weight gradients in its gaps, over a grid of settings.
pub fn schedule(request: &SchedulingRequest<'_>) -> Result<Scheduled, SchedulingError> {
    let v = request.stages_per_rank()?;
    let found = best(request, v);
    let StageMemory { activations, for_weight_grad } = request.kept;
    if for_weight_grad == activations {
        return Ok(found);
    }
    // A schedule made for activations that are all held until the weight gradient also fits where only a part is held,
    // and is sometimes better. So more memory never makes the result worse.
    let whole = StageMemory { activations, for_weight_grad: activations };
    let strict = best(&SchedulingRequest { kept: whole, ..request.clone() }, v);
    let strict = Scheduled::new(strict.schedule, strict.family, request);
    let key = |scheduled: &Scheduled| score(&scheduled.times, scheduled.peak, request);
    Ok(if key(&strict) < key(&found) { strict } else { found })
}

/// The shortest schedule found, for exactly the memory that the request states.
fn best(request: &SchedulingRequest<'_>, v: u32) -> Scheduled {
    let mut candidates: Vec<Candidate> = Vec::new();
    for (kind, schedule) in families(request, v) {
        let (order, placement) = (Arc::new(local::order(&schedule)), schedule.placement().clone());
        candidates.push(Candidate::Family(kind, schedule));
        candidates.extend(policy::PATIENCE.map(|patience| {
            Candidate::Refilled(Some(kind), placement.clone(), Arc::clone(&order), patience)
        }));
    }
    let naive = Arc::new(one_after_the_other(request, v));
    candidates.push(Candidate::Refilled(None, StagePlacement::Loop, naive, 0.0));
    for placement in placements(v) {
        let policies = Policy::grid(placement == StagePlacement::V);
        candidates.extend(policies.map(|policy| Candidate::Greedy(placement.clone(), policy)));
    }
    let candidates = affordable(candidates, request.num_actions());
    let scores = candidates.par_iter().enumerate();
    let best =
        scores.filter_map(|(index, candidate)| Some((candidate.score(request)?, index))).min();
    let (score, index) = best.expect("one micro-batch after the other fits");
    let found = candidates[index].build(request).expect("what was scored can be built");
    if score.0 == least_makespan(request, &found.schedule)
        && score.1 == least_span(request, &found.schedule)
    {
        return found;
    }
    let Some(better) = local::improve(request, &found.schedule, score) else { return found };
    let placement = found.schedule.placement().clone();
    let schedule = Schedule::new(better.steps, placement, request.num_micro_batches);
    schedule.map_or(found.clone(), |schedule| Scheduled::new(schedule, found.family, request))
}

/// Largest number of actions in all orders tried by one search, without the families; they take some seconds.
const MOST_TRIED: u64 = 8_000_000;

/// The candidates, thinned out evenly for large schedules so that trying them takes no longer than for smaller ones;
/// the families and the order that always fits stay.
fn affordable(mut candidates: Vec<Candidate>, num_actions: u64) -> Vec<Candidate> {
    let is_optional = |candidate: &Candidate| {
        !matches!(candidate, Candidate::Family(..) | Candidate::Refilled(None, ..))
    };
    let most = MOST_TRIED / num_actions.max(1);
    let all = candidates.iter().filter(|candidate| is_optional(candidate)).count() as u64;
    let kept = |nth: u64| nth * most / all.max(most).max(1);
    let mut nth = 0;
    candidates.retain(|candidate| {
        nth += u64::from(is_optional(candidate));
        !is_optional(candidate) || kept(nth) > kept(nth - 1)
    });
    candidates
}

/// Lower bound of the makespan on this placement: the work of a rank after the first micro-batch arrives at it.
fn least_makespan(request: &SchedulingRequest<'_>, schedule: &Schedule) -> Nanos {
    let Durations { stages, send } = request.durations;
    let mut arrival = vec![None; request.num_ranks as usize];
    let mut time = Nanos::ZERO;
    let mut before = None;
    for (stage, passes) in stages.iter().enumerate() {
        let rank = schedule.rank(stage as u32, 0) as usize;
        if before.is_some_and(|before| before != rank) {
            time += *send;
        }
        arrival[rank].get_or_insert(time);
        time += passes.forward;
        before = Some(rank);
    }
    let work = works(request, schedule);
    let ends = arrival.into_iter().zip(work).map(|(start, work)| start.unwrap_or_default() + work);
    ends.max().unwrap_or_default()
}

/// Lower bound of the longest span: the longest work of a rank.
fn least_span(request: &SchedulingRequest<'_>, schedule: &Schedule) -> Nanos {
    works(request, schedule).into_iter().max().unwrap_or_default()
}

/// Time of all actions of each rank.
fn works(request: &SchedulingRequest<'_>, schedule: &Schedule) -> Vec<Nanos> {
    let mut works = vec![Nanos::ZERO; request.num_ranks as usize];
    for (stage, passes) in (0..).zip(&request.durations.stages) {
        works[schedule.rank(stage, 0) as usize] +=
            passes.total() * u64::from(request.num_micro_batches);
    }
    works
}

/// Placements of `v` stages per rank that a greedy policy may use.
fn placements(v: u32) -> Vec<StagePlacement> {
    match v {
        1 => vec![StagePlacement::Loop],
        2 => vec![StagePlacement::V],
        _ => Vec::new(),
    }
}

/// Schedules of every family with `v` stages per rank.
fn families(request: &SchedulingRequest<'_>, v: u32) -> Vec<(ScheduleKind, Schedule)> {
    let SchedulingRequest { num_ranks: p, num_micro_batches: m, .. } = *request;
    let is_candidate = |kind: &ScheduleKind| match kind {
        // DualPipe has two copies of the parameters, and asynchronous 1F1B updates without a flush.
        ScheduleKind::DualPipe | ScheduleKind::AsyncOneFOneB => false,
        _ => kind.is_interleaved() || kind.default_virtual_stages() == v,
    };
    let kinds = ScheduleKind::ALL.into_iter().filter(is_candidate);
    kinds.filter_map(|kind| Some((kind, generate(kind, p, m, v).ok()?))).collect()
}

/// Order that runs one micro-batch after the other through all stages; it fits in any memory in which some order does.
fn one_after_the_other(request: &SchedulingRequest<'_>, v: u32) -> Vec<Vec<Action>> {
    let SchedulingRequest { num_ranks: p, num_micro_batches: m, .. } = *request;
    let of_rank = |rank| {
        let pass =
            |kind, micro_batch| move |nth| Action { stage: nth * p + rank, kind, micro_batch };
        let of_one = |micro_batch| {
            let forwards = (0..v).map(pass(ActionKind::Forward, micro_batch));
            forwards.chain((0..v).rev().map(pass(ActionKind::InputGrad, micro_batch)))
        };
        (0..m).flat_map(of_one).collect()
    };
    (0..p).map(of_rank).collect()
}

/// A candidate order.
enum Candidate {
    /// A family's schedule as it is.
    Family(ScheduleKind, Schedule),
    /// Forwards and input gradients in the order of a family, or of [`one_after_the_other`], with weight gradients
    /// filled in by the list scheduler.
    Refilled(Option<ScheduleKind>, StagePlacement, Arc<Vec<Vec<Action>>>, f64),
    /// The order that a greedy policy makes.
    Greedy(StagePlacement, Policy),
}

impl Candidate {
    fn score(&self, request: &SchedulingRequest<'_>) -> Option<Score> {
        match self {
            Self::Family(_, schedule) => {
                let times = earliest(schedule, request.durations);
                score(&times, peak(schedule, request.kept), request)
            }
            _ => self.list(request)?.score(request),
        }
    }

    fn list(&self, request: &SchedulingRequest<'_>) -> Option<Outcome> {
        match self {
            Self::Family(..) => None,
            Self::Refilled(_, placement, order, patience) => {
                List::new(request, placement).refill(order, *patience)
            }
            Self::Greedy(placement, policy) => List::new(request, placement).greedy(policy),
        }
    }

    fn build(&self, request: &SchedulingRequest<'_>) -> Option<Scheduled> {
        let (placement, family) = match self {
            Self::Family(kind, schedule) => {
                return Some(Scheduled::new(schedule.clone(), Some(*kind), request));
            }
            Self::Refilled(kind, placement, ..) => (placement, *kind),
            Self::Greedy(placement, _) => (placement, None),
        };
        let steps = self.list(request)?.steps;
        let schedule = Schedule::new(steps, placement.clone(), request.num_micro_batches).ok()?;
        Some(Scheduled::new(schedule, family, request))
    }
}

impl Scheduled {
    fn new(
        schedule: Schedule,
        family: Option<ScheduleKind>,
        request: &SchedulingRequest<'_>,
    ) -> Self {
        let times = earliest(&schedule, request.durations);
        let peak = peak(&schedule, request.kept);
        Self { schedule, times, peak, family }
    }
}

/// The most memory that any rank of a schedule holds, as the simulator counts it, with the unit of `kept` in place of
/// bytes.
fn peak(schedule: &Schedule, kept: StageMemory) -> u64 {
    let [activations, for_weight_grad] = [kept.activations, kept.for_weight_grad].map(Bytes::new);
    let of_each = ActivationBytes { activations, for_weight_grad, workspace: Bytes::ZERO };
    let stages = vec![of_each; schedule.num_stages() as usize];
    peak_memory(&Order::new(schedule), &stages).into_iter().max().unwrap_or_default().get()
}
