//! Steps of many micro-batches from few, and bounds, against steps that are played through.

use ir::collective::Collective;
use ir::schedule::{Schedule, ScheduleKind, add_optimizer_steps, add_reduction, generate};
use ir::units::{Bytes, Nanos};
use proptest::prelude::*;
use simulator::{
    ActivationBytes, Cycle, Durations, GroupCollective, Messages, Order, PassOrder, PassPart,
    PassTimes, Run, StepWork, Transfer, lower_bound, peak_memory, simulate, step_time,
};

use super::families::fitting;
use super::laws::passes;
use super::least::{min_pass_times, step_tail};

/// A step with everything that steps can have.
fn whole(kind: ScheduleKind, p: u32, m: u32, v: u32) -> Schedule {
    add_optimizer_steps(&add_reduction(&generate(kind, p, m, v).unwrap()))
}

fn transfer(time: u64) -> Transfer {
    Transfer::new(Collective::AllReduce, Nanos::new(time), Bytes::ZERO)
}

/// Work of stages in addition to their passes.
#[derive(Clone, Debug)]
struct Extras {
    send: u64,
    gather: u64,
    reduce: u64,
    on_link: u64,
    slowdown: u32,
    reduces_each: bool,
}

fn extras() -> impl Strategy<Value = Extras> {
    (0_u64..20, 0_u64..60, 0_u64..60, 0_u64..30, 0_u32..300, any::<bool>()).prop_map(
        |(send, gather, reduce, on_link, slowdown, reduces_each)| Extras {
            send,
            gather,
            reduce,
            on_link,
            slowdown,
            reduces_each,
        },
    )
}

fn work(schedule: &Schedule, passes: &[PassTimes], extras: &Extras) -> StepWork {
    let num_stages = schedule.num_stages() as usize;
    let stages = passes.iter().cycle().take(num_stages).copied().collect();
    let durations = Durations { stages, send: Nanos::new(extras.send) };
    let mut work = StepWork::plain(&durations, schedule.num_ranks());
    work.messages = Messages::Queue;
    work.slowdown_per_mille = extras.slowdown;
    work.groups = vec![(0..schedule.num_ranks()).collect()];
    let is_async = schedule.updates() == ir::schedule::Updates::AfterEachMicroBatch;
    for stage in &mut work.stages {
        let PassPart::Run(run) = stage.forward[0] else { panic!("a pass is one run") };
        let on_link = Nanos::new(extras.on_link.min(run.time.get()));
        let run = Run { on_link, waits_on_link: on_link, ..run };
        let with_gather =
            [PassPart::Start(transfer(extras.gather)), PassPart::Run(run), PassPart::Wait];
        stage.forward = with_gather.into_iter().collect();
        let reduce = PassPart::Start(transfer(extras.reduce));
        if extras.reduces_each {
            stage.backward.push(reduce);
            stage.weight_grad.push(reduce);
        } else {
            let with_reduction = stage.backward.iter().copied().chain([reduce]);
            stage.last_backward = Some(with_reduction.collect());
        }
        stage.update =
            [PassPart::Wait, PassPart::Run(Run::of_kernels(Nanos::new(5)))].into_iter().collect();
        if !is_async {
            stage.update.insert(
                1,
                PassPart::Collective(GroupCollective {
                    group: 0,
                    transfer: transfer(3),
                    is_reduction: false,
                }),
            );
        }
        stage.kept.activations = Bytes::new(run.time.get());
        stage.kept.for_weight_grad = Bytes::new(run.time.get() / 2);
    }
    work
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Where a schedule of few micro-batches has become periodic, the step of many is known to the
    /// nanosecond.
    #[test]
    fn skipped_cycles_change_nothing(
        kind in 0_usize..14, p in 1_u32..6, v in 1_u32..4, short in 4_u32..14, more in 1_u64..12,
        passes in prop::collection::vec(passes(), 1..3), extras in extras(),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let Some(period) = kind.cycle(p) else { return Ok(()) };
        let (p, few, v) = fitting(kind, p, (short + p) * period, v);
        let many = few + period * more as u32;
        let [few, longer, many] = [few, few + period, many].map(|m| whole(kind, p, m, v));
        let work = work(&few, &passes, &extras);
        let order = Order::new(&few);
        let Some(cycle) = Cycle::new(order, longer.ranks(), period) else {
            return Ok(());
        };
        let many = Order::new(&many);
        let played = step_time(&many, &work).unwrap();
        let skipped = cycle.step_time(&work, more).unwrap();
        if let Some(time) = skipped {
            prop_assert_eq!(time, played);
        }
    }

    /// The invariant of the search: no step is faster than its bound.
    #[test]
    fn no_step_is_faster_than_its_bound(
        kind in 0_usize..14, p in 1_u32..8, m in 1_u32..20, v in 1_u32..4,
        passes in prop::collection::vec(passes(), 1..8), extras in extras(),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let schedule = whole(kind, p, m, v);
        let work = work(&schedule, &passes, &extras);
        let time = step_time(&Order::new(&schedule), &work).unwrap();
        let passes = lower_bound(kind, p, m, &min_pass_times(kind, p, &work));
        let bound = step_tail(kind, p, m, &work).after(passes);
        prop_assert!(bound <= time, "{}: {} > {}", kind, bound.get(), time.get());
        let full = simulate(&schedule, &work).unwrap();
        prop_assert_eq!(full.timeline.end(), time);
        let kept: Vec<ActivationBytes> = work.stages.iter().map(|stage| stage.kept).collect();
        let peaks = peak_memory(&Order::new(&schedule), &kept);
        for (track, peak) in full.timeline.tracks.iter().zip(peaks) {
            prop_assert_eq!(track.peak_memory(), Some(peak));
        }
    }
}

proptest! {
    /// What a rank keeps when its first backward begins, and what it keeps of all its stages, is no more than
    /// it keeps at its peak, whatever each stage keeps.
    #[test]
    fn what_is_kept_at_least_is_kept(
        kind in 0_usize..14, p in 1_u32..8, m in 1_u32..20, v in 1_u32..4,
        kept in prop::collection::vec(1_u64..100, 28),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let m = if kind == ScheduleKind::Interleaved { m.next_multiple_of(p) } else { m };
        let order = Order::of_family(kind, p, m, v).unwrap();
        let stages = kept[..(p * v) as usize].iter().map(|bytes| {
            let activations = Bytes::new(*bytes);
            ActivationBytes { activations, for_weight_grad: activations, workspace: Bytes::ZERO }
        });
        let stages: Vec<ActivationBytes> = stages.collect();
        let peaks = peak_memory(&order, &stages);
        for (rank, peak) in (0..p).zip(peaks) {
            let own: Vec<u32> = kind.placement().stages(p, p * v, rank).collect();
            let of = |stage: &u32| stages[*stage as usize].activations;
            let numbers = [rank, p, v, m];
            let at_first = (0..).zip(&own).map(|(nth, stage)| {
                of(stage) * u64::from(kind.in_flight_at_first_backward(numbers, nth))
            });
            prop_assert!(at_first.clone().sum::<Bytes>() <= peak, "{}", kind);
            if kind.keeps_most_at_first_backward() {
                prop_assert_eq!(at_first.clone().sum::<Bytes>(), peak, "{}", kind);
            }
            let least = u64::from(kind.least_in_flight(rank, p, m));
            prop_assert!(own.iter().map(of).sum::<Bytes>() * least <= peak, "{}", kind);
        }
    }

    /// What is held at most is the same with as few micro-batches as fill the pipeline up, and where passes
    /// that repeat stand once.
    #[test]
    fn few_micro_batches_fill_a_pipeline_up(
        kind in 0_usize..14, p in 1_u32..12, m in 1_u32..120, v in 1_u32..5,
        kept in prop::collection::vec((1_u64..100, 0_u64..100, 0_u64..100), 44),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let m = if kind.is_interleaved() { m.next_multiple_of(p) } else { m };
        let stages: Vec<ActivationBytes> = kept[..(p * v) as usize].iter().map(|(all, later, held)| {
            let [activations, for_weight_grad, workspace] =
                [*all, *later.min(all), *held].map(Bytes::new);
            ActivationBytes { activations, for_weight_grad, workspace }
        }).collect();
        let few = PassOrder::of_family(kind, p, kind.fill_up(p, m), v).unwrap();
        let whole = Order::of_family(kind, p, m, v).unwrap();
        prop_assert_eq!(few.peak_memory(&stages), peak_memory(&whole, &stages), "{}", kind);
    }

    /// A family's order is that of its schedule, which is checked.
    #[test]
    fn orders_of_families_are_those_of_their_schedules(
        kind in 0_usize..14, p in 1_u32..8, m in 1_u32..20, v in 1_u32..4,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let order = Order::of_family(kind, p, m, v);
        prop_assert_eq!(order, Ok(Order::new(&whole(kind, p, m, v))));
    }
}

/// The families whose middle is periodic are skipped through, so that steps of many micro-batches cost
/// what steps of few do.
#[test]
fn the_middle_of_a_pipeline_is_periodic() {
    for kind in ScheduleKind::ALL {
        let Some(period) = kind.cycle(4) else { continue };
        let v = kind.default_virtual_stages();
        let m = 8 * period.max(4);
        let [few, longer] = [m, m + period].map(|m| whole(kind, 4, m, v));
        let extras =
            Extras { send: 1, gather: 0, reduce: 9, on_link: 0, slowdown: 0, reduces_each: false };
        let work = work(&few, &[PassTimes::UNIT], &extras);
        let cycle = Cycle::new(Order::new(&few), longer.ranks(), period);
        let cycle = cycle.unwrap_or_else(|| panic!("{kind} has no cycle of {period}"));
        assert!(cycle.step_time(&work, 12).unwrap().is_some(), "{kind}");
    }
}
