//! Bounds are as near as they can be: exact where a step is one chain of passes, whatever these take.
//! That no step is below its bound, `cycles.rs` has.

use ir::collective::Collective;
use ir::schedule::{ScheduleKind, add_optimizer_steps, add_reduction, generate};
use ir::units::{Bytes, Nanos};
use proptest::prelude::*;
use simulator::{
    Durations, GroupCollective, Order, PassPart, PassTimes, RankWork, Run, StageWork, StepTail,
    StepWork, Transfer, lower_bound, step_time,
};

use super::families::fitting;
use super::laws::passes;
use super::least::{min_pass_times, step_tail};

/// What the bound says of a schedule's passes, and when they are over.
fn both(
    kind: ScheduleKind,
    [p, m, v]: [u32; 3],
    passes: &[PassTimes],
    send: u64,
) -> (Nanos, Nanos) {
    let schedule = generate(kind, p, m, v).unwrap();
    let stages = passes.iter().cycle().take((p * v) as usize).copied().collect();
    let work = StepWork::plain(&Durations { stages, send: Nanos::new(send) }, p);
    let bound = lower_bound(kind, p, m, &min_pass_times(kind, p, &work));
    (bound, step_time(&Order::new(&schedule), &work).unwrap())
}

fn times(count: usize) -> impl Strategy<Value = Vec<PassTimes>> {
    prop::collection::vec(passes(), count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing is overlapped with one micro-batch, and with all forwards first, the slowest stage is waited for.
    #[test]
    fn what_is_one_chain_is_known_to_the_nanosecond(
        kind in 0_usize..14, p in 1_u32..8, m in 1_u32..20, v in 1_u32..4, passes in times(21),
        send in 0_u64..40,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let is_chain = [ScheduleKind::Sequential, ScheduleKind::GPipe].contains(&kind);
        let m = if is_chain { m } else { 1 };
        let (p, m, v) = fitting(kind, p, m, v);
        if kind.splits_backward() || kind.placement().num_copies() > 1 {
            return Ok(());
        }
        let (bound, time) = both(kind, [p, m, v], &passes, send);
        prop_assert_eq!(bound, time, "{}", kind);
    }

    /// Pipelines of equal stages take their closed form, and the bound is that.
    #[test]
    fn pipelines_of_equal_stages_are_known_to_the_nanosecond(
        p in 1_u32..8, rounds in 1_u32..6, v in 1_u32..5, passes in passes(),
    ) {
        for kind in [
            ScheduleKind::OneFOneB, ScheduleKind::AsyncOneFOneB, ScheduleKind::GPipe,
            ScheduleKind::Interleaved, ScheduleKind::LoopedBfs,
        ] {
            let v = if kind.is_interleaved() { v } else { 1 };
            let (bound, time) = both(kind, [p, rounds * p, v], &[passes], 0);
            prop_assert_eq!(bound, time, "{}", kind);
        }
        for (kind, v) in [(ScheduleKind::ZbH2, 1), (ScheduleKind::Zbv, 2)] {
            let (bound, time) = both(kind, [p, 2 * p - 1 + rounds, v], &[PassTimes::UNIT], 0);
            prop_assert_eq!(bound, time, "{}", kind);
        }
    }

    /// Where one stage takes a million times what others do, its passes are the step, in every family.
    #[test]
    fn a_slow_stage_is_what_counts(
        kind in 0_usize..14, p in 1_u32..8, m in 1_u32..20, v in 1_u32..4, passes in times(28),
        at in 0_usize..28,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let mut passes = passes[..(p * v) as usize].to_vec();
        let at = at % passes.len();
        let slow = &mut passes[at];
        for time in [&mut slow.forward, &mut slow.input_grad, &mut slow.weight_grad] {
            *time = *time * 1_000_000;
        }
        let (bound, time) = both(kind, [p, m, v], &passes, 0);
        prop_assert!(bound.get() * 100 >= time.get() * 98, "{}: {:?} of {:?}", kind, bound, time);
    }

    /// The first rank of 1F1B waits for its first gradient once it has done the forwards before it; where each
    /// of its passes takes as long as both of the others', it waits no more after that.
    #[test]
    fn a_first_rank_waits_for_its_first_gradient(
        p in 2_u32..8, more in 0_u32..12, others in passes(),
    ) {
        let all = others.total();
        let first = PassTimes { forward: all, input_grad: all, weight_grad: Nanos::ZERO };
        let passes: Vec<_> = [first].into_iter().chain(vec![others; p as usize - 1]).collect();
        let (bound, time) = both(ScheduleKind::OneFOneB, [p, p + more, 1], &passes, 0);
        prop_assert_eq!(bound, time);
        // Interleaved as well, of two ranks; with more, others are waited for in between.
        if p == 2 {
            for v in 2..5 {
                let m = 2 * (1 + more / 3);
                let (bound, time) = both(ScheduleKind::Interleaved, [p, m, v], &passes, 0);
                prop_assert_eq!(bound, time, "{} chunks", v);
            }
        }
    }
}

const fn transfer(time: u64) -> Transfer {
    Transfer::new(Collective::AllReduce, Nanos::new(time), Bytes::ZERO)
}

const fn run(time: u64) -> PassPart {
    PassPart::Run(Run::of_kernels(Nanos::new(time)))
}

/// One rank that gathers before its forward, reduces in its last backward and after it, and updates; as a bound
/// and played.
#[test]
fn an_ending_by_hand() {
    let (kind, m) = (ScheduleKind::GPipe, 3);
    let collective = |time, is_reduction| {
        PassPart::Collective(GroupCollective { group: 0, transfer: transfer(time), is_reduction })
    };
    let stage = StageWork {
        forward: [PassPart::Start(transfer(7)), PassPart::Wait, run(10)].into_iter().collect(),
        backward: [run(20)].into_iter().collect(),
        last_backward: Some([run(20), PassPart::Start(transfer(100))].into_iter().collect()),
        reduce: vec![transfer(30), transfer(31)],
        update: [PassPart::Wait, collective(40, true), collective(3, false), run(5)]
            .into_iter()
            .collect(),
        ..StageWork::default()
    };
    let mut work = StepWork::plain(&Durations { stages: Vec::new(), send: Nanos::ZERO }, 1);
    work.groups = vec![vec![0]];
    work.stages.push(stage);

    let least = min_pass_times(kind, 1, &work);
    assert_eq!(least[0].forward, Nanos::new(17), "a forward waits for what it gathers");
    let passes = lower_bound(kind, 1, m, &least);
    assert_eq!(passes, Nanos::new(3 * (17 + 20)));
    let ending = step_tail(kind, 1, m, &work);
    let expected = StepTail {
        until_group_collective: Nanos::new(100 + 30 + 31 + 40),
        transfers: Nanos::new(3 * 7 + 30 + 31),
        update: Nanos::new(3 + 5),
    };
    assert_eq!(ending, expected);
    let schedule = add_optimizer_steps(&add_reduction(&generate(kind, 1, m, 1).unwrap()));
    assert_eq!(step_time(&Order::new(&schedule), &work).unwrap(), ending.after(passes));
}

/// All that a rank transfers goes over its link, be it longer than its passes; also what began with the step.
#[test]
fn transfers_follow_each_other() {
    let kind = ScheduleKind::OneFOneB;
    let reducing = |time| [run(2), PassPart::Start(transfer(time))].into_iter().collect();
    let stage = StageWork {
        forward: [PassPart::Start(transfer(50)), run(1), PassPart::Wait].into_iter().collect(),
        backward: reducing(90),
        reduce: vec![transfer(11)],
        update: [PassPart::Wait, run(5)].into_iter().collect(),
        ..StageWork::default()
    };
    let ranks = vec![RankWork { prefetch: vec![(0, transfer(1000))], ..RankWork::default() }];
    let mut work = StepWork::plain(&Durations { stages: Vec::new(), send: Nanos::ZERO }, 1);
    work.ranks = ranks;
    work.groups = vec![vec![0]];
    work.stages.push(stage);
    assert_eq!(step_tail(kind, 1, 4, &work), StepTail::default(), "nobody meets");
    let collective = GroupCollective { group: 0, transfer: transfer(3), is_reduction: false };
    work.stages[0].update.insert(1, PassPart::Collective(collective));
    let ending = step_tail(kind, 1, 4, &work);
    assert_eq!(ending.transfers, Nanos::new(1000 + 4 * (50 + 90) + 11));
    assert_eq!(ending.update, Nanos::new(3 + 5));
    let schedule = add_optimizer_steps(&add_reduction(&generate(kind, 1, 4, 1).unwrap()));
    let time = step_time(&Order::new(&schedule), &work).unwrap();
    let bound = ending.after(lower_bound(kind, 1, 4, &min_pass_times(kind, 1, &work)));
    // A gather is queued before the backward that the next reduction comes from: for so long the link idles.
    assert_eq!(bound + Nanos::new(4 * 2), time);
}
