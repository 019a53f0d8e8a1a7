//! The scheduler that looks at the costs: against the named families, against every order of small
//! cases, and against an integer program.

use good_lp::{Expression, ProblemVariables, Solution, SolverModel, constraint, variable};
use ir::schedule::{
    Action, ActionKind, Schedule, ScheduleKind, ScheduleStep, StagePlacement, generate,
};
use ir::units::Nanos;
use planner_core::scheduling::{Scheduled, SchedulingRequest, StageMemory, schedule};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use simulator::{Durations, PassTimes, earliest};

use crate::random::drawn;

/// A micro-batch counts one until its weight gradient.
const WHOLE: StageMemory = StageMemory { activations: 1, for_weight_grad: 1 };

/// Half is free after the input gradient. The authors of zero bubble free more: all but `32 h` of
/// `34 h + 5 a s`.
const HALF: StageMemory = StageMemory { activations: 2, for_weight_grad: 1 };

fn passes(forward: u64, input_grad: u64, weight_grad: u64) -> PassTimes {
    let [forward, input_grad, weight_grad] = [forward, input_grad, weight_grad].map(Nanos::new);
    PassTimes { forward, input_grad, weight_grad }
}

fn any_durations(num_stages: usize) -> impl Strategy<Value = Durations> {
    let stage = (1_u64..40, 1_u64..40, 1_u64..40).prop_map(|(f, i, w)| passes(f, i, w));
    (prop::collection::vec(stage, num_stages), 0_u64..60)
        .prop_map(|(stages, send)| Durations { stages, send: Nanos::new(send) })
}

fn request(
    durations: &Durations,
    p: u32,
    m: u32,
    kept: StageMemory,
    limit: u64,
) -> SchedulingRequest<'_> {
    SchedulingRequest { durations, num_ranks: p, num_micro_batches: m, kept, limit }
}

/// The most that a rank keeps at any time.
fn peak(schedule: &Schedule, kept: StageMemory) -> u64 {
    let of_rank = |steps: &Vec<ScheduleStep>| {
        let (mut held, mut peak) = (0, 0);
        for action in steps.iter().flat_map(|step| step.actions()) {
            held = match action.kind {
                ActionKind::Forward => held + kept.activations,
                ActionKind::Backward => held - kept.activations,
                ActionKind::InputGrad => held - (kept.activations - kept.for_weight_grad),
                _ => held - kept.for_weight_grad,
            };
            peak = peak.max(held);
        }
        peak
    };
    schedule.ranks().iter().map(of_rank).max().unwrap()
}

proptest! {
    #![proptest_config(drawn(12))]

    /// Whatever the stages cost: within the memory, and no slower than any family that fits it.
    #[test]
    fn never_slower_than_the_families(
        p in 1_u32..6, m in 1_u32..10, v in 1_u32..4, rounds in 1_u64..3, half in any::<bool>(),
        durations in any_durations(15),
    ) {
        let stages = durations.stages[..(p * v) as usize].to_vec();
        let durations = Durations { stages, ..durations };
        let kept = if half { HALF } else { WHOLE };
        let limit = rounds * u64::from(p * v) * kept.activations;
        let Scheduled { schedule: found, times, peak: stated, .. } =
            schedule(&request(&durations, p, m, kept, limit)).unwrap();
        prop_assert_eq!(&times, &earliest(&found, &durations));
        prop_assert_eq!(stated, peak(&found, kept));
        prop_assert!(stated <= limit);
        for kind in ScheduleKind::ALL {
            let Ok(family) = generate(kind, p, m, v) else { continue };
            // Two copies of the parameters are another system.
            if kind != ScheduleKind::DualPipe && peak(&family, kept) <= limit {
                let family = earliest(&family, &durations).makespan;
                prop_assert!(times.makespan <= family, "{kind}: {family}");
            }
        }
    }

    #[test]
    fn the_same_on_any_number_of_threads(durations in any_durations(4), m in 1_u32..8) {
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| schedule(&request(&durations, 4, m, WHOLE, 8)).unwrap().schedule)
        };
        prop_assert_eq!(on(1), on(2));
    }
}

/// Keeping less never makes it worse.
#[test]
fn less_that_is_kept_is_never_worse() {
    let durations = Durations::equal(passes(18_522, 18_086, 9_337), 16, Nanos::new(1202));
    let makespan = |for_weight_grad| {
        let kept = StageMemory { activations: 4, for_weight_grad };
        schedule(&request(&durations, 8, 16, kept, 4 * 16)).unwrap().times.makespan
    };
    assert!(makespan(2) <= makespan(4) && makespan(0) <= makespan(4));
}

/// Every order of forwards, input and weight gradients on a rank, micro-batches in turn, within a limit.
fn orders_of_rank(stage: u32, m: u32, limit: u64) -> Vec<Vec<ScheduleStep>> {
    fn extend(
        steps: &mut Vec<ScheduleStep>,
        [f, i, w]: [u32; 3],
        ends: (u32, u32, u64),
        all: &mut Vec<Vec<ScheduleStep>>,
    ) {
        let (stage, m, limit) = ends;
        if w == m {
            all.push(steps.clone());
            return;
        }
        let mut go = |kind, micro_batch, next| {
            steps.push(ScheduleStep::One(Action { stage, kind, micro_batch }));
            extend(steps, next, ends, all);
            steps.pop();
        };
        if f < m && u64::from(f + 1 - w) <= limit {
            go(ActionKind::Forward, f, [f + 1, i, w]);
        }
        if i < f {
            go(ActionKind::InputGrad, i, [f, i + 1, w]);
        }
        if w < i {
            go(ActionKind::WeightGrad, w, [f, i, w + 1]);
        }
    }
    let mut all = Vec::new();
    extend(&mut Vec::new(), [0; 3], (stage, m, limit), &mut all);
    all
}

/// The least makespan of all orders of two ranks that do not deadlock.
fn exhaustive(durations: &Durations, m: u32, limit: u64) -> Nanos {
    let orders = [0, 1].map(|stage| orders_of_rank(stage, m, limit));
    let pairs =
        orders[0].iter().flat_map(|first| orders[1].iter().map(move |second| [first, second]));
    let makespans = pairs.filter_map(|[first, second]| {
        let ranks = vec![first.clone(), second.clone()];
        let schedule = Schedule::new(ranks, StagePlacement::Loop, m).ok()?;
        Some(earliest(&schedule, durations).makespan)
    });
    makespans.min().unwrap()
}

proptest! {
    #![proptest_config(drawn(24))]

    /// Two ranks, up to three micro-batches, any costs and memory: the best of all orders, or near it.
    #[test]
    fn small_cases_are_nearly_solved(
        durations in any_durations(2), m in 1_u32..4, limit in 1_u64..4,
    ) {
        let found = schedule(&request(&durations, 2, m, WHOLE, limit)).unwrap().times.makespan;
        let least = exhaustive(&durations, m, limit);
        prop_assert!(found >= least);
        prop_assert!(found.as_f64() <= 1.05 * least.as_f64(), "{} and not {}", found, least);
    }
}

/// Of such cases nearly all are solved: of 400 that were drawn once, all; one that is not, by 0.8 %, has a
/// long weight gradient that must begin although what comes next is due.
#[test]
fn most_small_cases_are_solved() {
    let mut runner = TestRunner::deterministic();
    let strategy = (any_durations(2), 1_u32..4, 1_u64..4);
    for _ in 0..24 {
        let (durations, m, limit) = strategy.new_tree(&mut runner).unwrap().current();
        let found = schedule(&request(&durations, 2, m, WHOLE, limit)).unwrap().times.makespan;
        assert_eq!(found, exhaustive(&durations, m, limit), "{durations:?}, {m}, {limit}");
    }
    let stages = vec![passes(14, 10, 15), passes(1, 1, 25)];
    let durations = Durations { stages, send: Nanos::new(15) };
    let found = schedule(&request(&durations, 2, 3, WHOLE, 3)).unwrap().times.makespan;
    let least = exhaustive(&durations, 3, 3);
    assert!(found.as_f64() <= 1.01 * least.as_f64(), "{found} and not {least}");
}

/// The least makespan without a limit of memory, as an integer program: a start for each pass, and a
/// binary for each two passes of a rank that says which goes first. Micro-batches go in turn.
fn integer_program(durations: &Durations, m: usize) -> f64 {
    let p = durations.stages.len();
    let horizon: u64 = durations.stages.iter().map(|stage| stage.total().get() * m as u64).sum();
    let horizon = (horizon + 2 * (p * m) as u64 * durations.send.get()) as f64;
    let mut variables = ProblemVariables::new();
    let mut starts = || -> Vec<_> {
        (0..p * m).map(|_| variables.add(variable().min(0).max(horizon))).collect()
    };
    let [forward, input, weight] = [starts(), starts(), starts()];
    let makespan = variables.add(variable().min(0));
    let at = |stage: usize, micro_batch: usize| stage * m + micro_batch;
    let times: Vec<[f64; 3]> = durations
        .stages
        .iter()
        .map(|stage| [stage.forward, stage.input_grad, stage.weight_grad].map(Nanos::as_f64))
        .collect();
    let send = durations.send.as_f64();
    let mut constraints = Vec::new();
    for (stage, [f, i, w]) in times.iter().enumerate() {
        for k in 0..m {
            let here = at(stage, k);
            constraints.push(constraint!(makespan >= weight[here] + *w));
            constraints.push(constraint!(weight[here] >= input[here] + *i));
            constraints.push(constraint!(input[here] >= forward[here] + *f));
            if stage > 0 {
                let before = at(stage - 1, k);
                constraints.push(constraint!(
                    forward[here] >= forward[before] + times[stage - 1][0] + send
                ));
                constraints.push(constraint!(input[before] >= input[here] + *i + send));
            }
            if k > 0 {
                let last = at(stage, k - 1);
                constraints.push(constraint!(forward[here] >= forward[last] + *f));
                constraints.push(constraint!(input[here] >= input[last] + *i));
                constraints.push(constraint!(weight[here] >= weight[last] + *w));
            }
        }
        // Of two passes of different kinds, where the order is open.
        let mut apart = |a: good_lp::Variable, a_time: f64, b: good_lp::Variable, b_time: f64| {
            let first = variables.add(variable().binary());
            let slack: Expression = horizon * (1 - first);
            constraints.push(constraint!(b + slack >= a + a_time));
            constraints.push(constraint!(a + horizon * first >= b + b_time));
        };
        for k in 0..m {
            for other in 0..k {
                apart(forward[at(stage, k)], *f, input[at(stage, other)], *i);
                apart(forward[at(stage, k)], *f, weight[at(stage, other)], *w);
                apart(input[at(stage, k)], *i, weight[at(stage, other)], *w);
            }
        }
    }
    let mut model = variables.minimise(makespan).using(good_lp::microlp);
    for constraint in constraints {
        model = model.with(constraint);
    }
    model.solve().unwrap().value(makespan)
}

#[test]
fn an_integer_program_agrees() {
    for (stages, send, m) in [
        (vec![passes(3, 5, 2), passes(4, 4, 3)], 1, 2),
        (vec![passes(10, 10, 10), passes(10, 10, 10)], 0, 2),
        (vec![passes(2, 2, 9), passes(7, 3, 1)], 4, 2),
        (vec![passes(1, 2, 3), passes(3, 1, 1), passes(2, 2, 2)], 0, 2),
    ] {
        let durations = Durations { stages, send: Nanos::new(send) };
        let p = durations.stages.len() as u32;
        let found = schedule(&request(&durations, p, m, WHOLE, 100)).unwrap();
        let exact = integer_program(&durations, m as usize);
        let makespan = found.times.makespan.as_f64();
        assert!((makespan - exact).abs() < 1e-6, "{makespan}, but {exact} is possible");
    }
}

/// Equal costs, 8 ranks, 32 micro-batches: no more idle time from a rank's first action than the authors
/// of zero bubble report, within the memory that they report.
#[test]
fn bubbles_at_equal_costs_are_no_larger_than_the_authors() {
    for (v, limit, most) in [(1, 8, 0.068), (1, 16, 0.0), (2, 16, 0.0), (2, 10, 0.082)] {
        let durations = Durations::equal(PassTimes::UNIT, 8 * v, Nanos::ZERO);
        let found = schedule(&request(&durations, 8, 32, WHOLE, limit)).unwrap();
        let bubble = found.times.bubble_from_first_action();
        assert!(bubble <= most, "{v} chunks, {limit} in flight: {bubble}");
    }
}

/// Costs in microseconds that Qi et al. 2023 measured for 8 ranks and 24 micro-batches (their evaluation
/// scripts, sail-sg/zero-bubble), here on 16 ranks: a bubble of at most .004 with twice 1F1B's memory, and
/// of at most .059 within it, which takes two chunks a rank: with one, the first rank waits
/// for its first gradient with all that it may keep.
#[test]
fn bubbles_at_measured_costs_are_no_larger_than_the_authors() {
    let send = Nanos::new(601);
    let whole = Durations::equal(passes(18_522, 18_086, 9_337), 16, send);
    let found = schedule(&request(&whole, 16, 64, HALF, 2 * 2 * 16)).unwrap();
    let bubble = found.times.bubble_from_first_action();
    assert!(bubble <= 0.004, "{bubble}");

    let halves = Durations::equal(passes(9_261, 9_043, 4_668), 32, send);
    let found = schedule(&request(&halves, 16, 64, WHOLE, 2 * 16)).unwrap();
    let bubble = found.times.bubble_from_first_action();
    assert!(bubble <= 0.059, "{bubble}");
}

#[test]
fn what_cannot_be_scheduled_is_refused() {
    let durations = Durations::equal(PassTimes::UNIT, 4, Nanos::ZERO);
    let error = |p, m, kept, limit| {
        schedule(&request(&durations, p, m, kept, limit)).unwrap_err().to_string()
    };
    assert_eq!(error(0, 1, WHOLE, 1), "`pipeline_parallel` is 0; a schedule needs at least 1");
    assert_eq!(error(4, 0, WHOLE, 1), "`num_micro_batches` is 0; a schedule needs at least 1");
    assert_eq!(error(3, 1, WHOLE, 1), "4 stages on 3 ranks; each rank needs as many as the others");
    assert_eq!(error(2, 1, HALF, 3), "a limit of 3, but one micro-batch alone keeps 4 on a rank");
    let odd = StageMemory { activations: 1, for_weight_grad: 2 };
    assert_eq!(error(2, 1, odd, 9), "2 kept for the weight gradient, of 1 that there are");
    assert!(error(4, 1 << 30, WHOLE, 9).contains("more than the 1572864"));
}
