//! Steps played through: against the plain rule where nothing is shared, and by hand where something is.

use ir::collective::Collective;
use ir::schedule::{
    Schedule, ScheduleKind, add_communication, add_optimizer_steps, add_reduction, generate,
};
use ir::units::{Bytes, Nanos};
use proptest::prelude::*;
use simulator::{
    Durations, GroupCollective, Messages, PassPart, PassParts, PassTimes, RankWork, Run,
    SimulationError, StageWork, StepWork, Transfer, earliest, simulate,
};
use traces::timeline::{Stream, Timeline};

use super::families::fitting;
use super::laws::passes;

fn durations(num_stages: usize) -> impl Strategy<Value = Durations> {
    (prop::collection::vec(passes(), num_stages), 0_u64..50)
        .prop_map(|(stages, send)| Durations { stages, send: Nanos::new(send) })
}

/// A family's schedule, and the durations gone round for each of its stages.
fn with_durations(
    kind: ScheduleKind,
    [p, m, v]: [u32; 3],
    durations: &Durations,
) -> (Schedule, Vec<PassTimes>) {
    let schedule = generate(kind, p, m, v).unwrap();
    let num_stages = schedule.num_stages() as usize;
    let stages = durations.stages.iter().cycle().take(num_stages).copied().collect();
    (schedule, stages)
}

proptest! {
    /// Where messages are mere delays, both simulators agree to the nanosecond, on every rank. Where they
    /// wait for their turn on a link, that comes on top.
    #[test]
    fn agrees_with_the_plain_rule(
        kind in 0_usize..14, p in 1_u32..7, m in 1_u32..14, v in 1_u32..4,
        durations in durations(18),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let (schedule, stages) = with_durations(kind, [p, m, v], &durations);
        let durations = Durations { stages, ..durations };
        let plain = earliest(&schedule, &durations);
        let mut work = StepWork::plain(&durations, schedule.num_ranks());
        work.messages = Messages::Queue;
        let queued = simulate(&schedule, &work).unwrap().timeline.end();
        prop_assert!(queued >= plain.makespan);
        prop_assert!(queued == plain.makespan || durations.send > Nanos::ZERO);
        work.messages = Messages::Delay;
        let full = simulate(&schedule, &work).unwrap();
        for (track, rank) in full.timeline.tracks.iter().zip(&plain.ranks) {
            prop_assert_eq!(track.busy(), rank.passes);
            let passes = track.events.iter().filter(|event| event.stream == Stream::Compute);
            let end = passes.map(|event| event.end).max().unwrap();
            prop_assert_eq!(end, rank.end);
        }
        let fraction = full.timeline.bubble_fraction();
        prop_assert!((fraction - plain.bubble_fraction()).abs() < 1e-12);
    }

    /// Memory in use is what the schedule says, whatever takes how long.
    #[test]
    fn memory_follows_the_schedule(
        kind in 0_usize..14, p in 1_u32..7, m in 1_u32..14, v in 1_u32..4, passes in passes(),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let schedule = generate(kind, p, m, v).unwrap();
        let durations = Durations::equal(passes, schedule.num_stages(), Nanos::ZERO);
        let full = simulate(&schedule, &StepWork::plain(&durations, schedule.num_ranks())).unwrap();
        for (track, peak) in full.timeline.tracks.iter().zip(schedule.peak_in_flight()) {
            prop_assert_eq!(track.peak_memory(), Some(Bytes::new(peak.into())));
            prop_assert_eq!(track.memory.last().unwrap().bytes, Bytes::ZERO);
        }
    }

    /// The critical path leads from the start to the end, each part after the one before; only the
    /// two actions of an overlapped pair may lie beside each other.
    #[test]
    fn the_critical_path_explains_the_whole_step(
        kind in 0_usize..14, p in 1_u32..7, m in 1_u32..14, v in 1_u32..4,
        durations in durations(18),
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let (schedule, stages) = with_durations(kind, [p, m, v], &durations);
        let durations = Durations { stages, ..durations };
        let full = simulate(&schedule, &StepWork::plain(&durations, schedule.num_ranks())).unwrap();
        let mut time = Nanos::ZERO;
        for step in &full.critical_path {
            prop_assert!(step.start == time || kind == ScheduleKind::DualPipe && step.start < time);
            time = step.end;
        }
        prop_assert_eq!(time, full.timeline.end());
    }

    /// What ranks do, wait for and idle adds up to the step, on every rank; and idle time is the timeline's.
    #[test]
    fn whole_steps_add_up(
        kind in 0_usize..14, p in 1_u32..6, m in 1_u32..10, v in 1_u32..4, passes in passes(),
        send in 0_u64..20, on_link in 0_u64..30, slowdown in 0_u32..300,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let plain = add_communication(&generate(kind, p, m, v).unwrap());
        let schedule = add_optimizer_steps(&add_reduction(&plain));
        let durations = Durations::equal(passes, schedule.num_stages(), Nanos::new(send));
        let mut work = StepWork::plain(&durations, schedule.num_ranks());
        work.messages = Messages::Queue;
        work.slowdown_per_mille = slowdown;
        work.groups = vec![(0..schedule.num_ranks()).collect()];
        let is_async = kind == ScheduleKind::AsyncOneFOneB;
        for stage in &mut work.stages {
            let run = Run { on_link: Nanos::new(on_link), ..Run::of_kernels(passes.forward) };
            stage.forward = [PassPart::Start(transfer(20)), PassPart::Run(run), PassPart::Wait].into_iter().collect();
            stage.backward.push(PassPart::Start(transfer(30)));
            stage.reduce = vec![transfer(30)];
            stage.update = [PassPart::Wait, compute(5)].into_iter().collect();
            let collective = GroupCollective { group: 0, transfer: transfer(3), is_reduction: false };
            if !is_async {
                stage.update.insert(1, PassPart::Collective(collective));
            }
        }
        let full = simulate(&schedule, &work).unwrap();
        let end = full.timeline.end();
        let all: u64 = full.ranks.iter().map(|times| {
            assert!(times.spent() <= end, "{kind}: {times:?}");
            times.spent().get()
        }).sum();
        let busy = all as f64 / (end.as_f64() * full.ranks.len() as f64);
        prop_assert!((1.0 - busy - full.timeline.bubble_fraction()).abs() < 1e-9);
        for track in &full.timeline.tracks {
            prop_assert_eq!(track.memory.last().unwrap().bytes, Bytes::ZERO);
        }
        streams_do_one_thing_at_a_time(&full.timeline);
    }
}

fn streams_do_one_thing_at_a_time(timeline: &Timeline) {
    for track in &timeline.tracks {
        for stream in [Stream::Send, Stream::Data] {
            let mut until = Nanos::ZERO;
            for event in track.events.iter().filter(|event| event.stream == stream) {
                assert!(event.start >= until, "{stream}: {event:?}");
                until = event.end;
            }
        }
    }
}

fn transfer(time: u64) -> Transfer {
    Transfer::new(Collective::AllReduce, Nanos::new(time), Bytes::ZERO)
}

fn compute(time: u64) -> PassPart {
    PassPart::Run(Run::of_kernels(Nanos::new(time)))
}

/// One rank, one micro-batch: a forward of these parts, and no backward to speak of.
fn forward(parts: impl IntoIterator<Item = PassPart>, slowdown_per_mille: u32) -> Timeline {
    let schedule = generate(ScheduleKind::OneFOneB, 1, 1, 1).unwrap();
    let stage =
        StageWork { forward: parts.into_iter().collect::<PassParts>(), ..StageWork::default() };
    let ranks = vec![RankWork { multiplicity: 1, ..RankWork::default() }];
    let plain = StepWork::plain(&Durations::equal(PassTimes::default(), 1, Nanos::ZERO), 1);
    let work = StepWork { stages: vec![stage], ranks, slowdown_per_mille, ..plain };
    simulate(&schedule, &work).unwrap().timeline
}

/// When the transfers end.
fn ends(timeline: &Timeline) -> Vec<u64> {
    let events = timeline.tracks[0].events.iter();
    events.filter(|event| event.stream == Stream::Data).map(|event| event.end.get()).collect()
}

#[test]
fn a_pass_waits_for_its_transfers_or_not() {
    let start = PassPart::Start(transfer(30));
    let blocking = forward([compute(10), start, PassPart::Wait, compute(20)], 0);
    assert_eq!(blocking.end(), Nanos::new(60));
    let beside = forward([compute(10), start, compute(20), PassPart::Wait], 0);
    assert_eq!((beside.end(), ends(&beside)), (Nanos::new(40), vec![40]));
    // The first of two is waited for, not the second.
    let first = forward([start, start, PassPart::WaitFor(1), compute(10)], 0);
    assert_eq!((first.tracks[0].busy(), ends(&first)), (Nanos::new(40), vec![30, 60]));
    // Without a wait, the pass is over, and the step when the transfer is.
    let lone = forward([start, compute(20)], 0);
    assert_eq!((lone.tracks[0].busy(), lone.end()), (Nanos::new(20), Nanos::new(30)));
}

/// A run of 100 ns that waits 40 ns for exchanges on the link of a transfer of 60 ns: while both are under
/// way, exchanges take twice as long. In 140 ns the link is free for 100 ns; so the transfer is over after
/// 84 ns, in which 60 of the run's 100 ns are done.
#[test]
fn transfers_share_a_link_with_exchanges() {
    let time = Nanos::new;
    let run =
        Run { time: time(100), kernels: time(60), on_link: time(40), waits_on_link: time(40) };
    let timeline = forward([PassPart::Start(transfer(60)), PassPart::Run(run)], 0);
    assert_eq!((timeline.tracks[0].busy(), ends(&timeline)), (time(124), vec![84]));
    let hidden = Run { waits_on_link: Nanos::ZERO, ..run };
    let timeline = forward([PassPart::Start(transfer(60)), PassPart::Run(hidden)], 0);
    assert_eq!((timeline.tracks[0].busy(), ends(&timeline)), (time(100), vec![100]));
}

/// 100 ns of communication at three quarters of the kernels' rate cost 25 ns of 1,000.
#[test]
fn transfers_slow_kernels_down() {
    let start = PassPart::Start(transfer(100));
    assert_eq!(forward([start, compute(1000)], 250).end(), Nanos::new(1025));
    assert_eq!(forward([start, compute(1000)], 0).end(), Nanos::new(1000));
    assert_eq!(forward([compute(1000)], 250).end(), Nanos::new(1000));
}

/// Two pipeline ranks reduce the gradients of tied embeddings together: rank 1 is done first, as it
/// begins the backward, and waits for rank 0.
#[test]
fn a_collective_waits_for_all_of_its_ranks() {
    let schedule = add_optimizer_steps(&generate(ScheduleKind::OneFOneB, 2, 1, 1).unwrap());
    let passes = PassTimes::UNIT;
    let mut work = StepWork::plain(&Durations::equal(passes, 2, Nanos::ZERO), 2);
    work.groups = vec![vec![0, 1]];
    for stage in &mut work.stages {
        stage.update.push(PassPart::Collective(GroupCollective {
            group: 0,
            transfer: transfer(10),
            is_reduction: false,
        }));
    }
    let timeline = simulate(&schedule, &work).unwrap().timeline;
    for track in &timeline.tracks {
        let reduction = track.events.iter().find(|event| event.stream == Stream::Data).unwrap();
        assert_eq!((reduction.start, reduction.end), (Nanos::new(6), Nanos::new(16)));
    }
    // If rank 1 never comes to it, that is said.
    work.stages[1].update.clear();
    let error = simulate(&schedule, &work).unwrap_err();
    assert!(matches!(error, SimulationError::Stuck { rank: 0, .. }), "{error}");
}

/// What takes longer than nanoseconds count ends with the last of them, and nobody waits forever.
#[test]
fn a_step_of_centuries_ends() {
    let passes = PassTimes { forward: Nanos::new(u64::MAX / 3), ..PassTimes::UNIT };
    for kind in ScheduleKind::ALL {
        let (p, m, v) = fitting(kind, 4, 8, 2);
        let schedule = add_optimizer_steps(&generate(kind, p, m, v).unwrap());
        let durations = Durations::equal(passes, schedule.num_stages(), Nanos::new(5));
        for messages in [Messages::Queue, Messages::Delay] {
            let mut work = StepWork::plain(&durations, schedule.num_ranks());
            work.messages = messages;
            assert_eq!(
                simulator::played(&simulator::Order::new(&schedule), &work).unwrap().end,
                Nanos::new(u64::MAX),
                "{kind}"
            );
        }
    }
}

/// A rank sends one message after the other: a forward and a gradient that are made at once do not leave
/// at once.
#[test]
fn messages_of_a_rank_follow_each_other() {
    let schedule = generate(ScheduleKind::OneFOneB, 3, 6, 1).unwrap();
    let durations = Durations::equal(PassTimes::UNIT, 3, Nanos::new(10));
    let mut work = StepWork::plain(&durations, 3);
    work.messages = Messages::Queue;
    let timeline = simulate(&schedule, &work).unwrap().timeline;
    streams_do_one_thing_at_a_time(&timeline);
    // The rank in the middle sends twelve messages of ten units.
    assert!(timeline.end() >= Nanos::new(120));
}

/// Of an overlapped pair it is said how long both take together.
#[test]
fn overlapped_actions_begin_and_end_together() {
    let schedule = generate(ScheduleKind::DualPipeV, 1, 4, 2).unwrap();
    let durations = Durations::equal(PassTimes::UNIT, 2, Nanos::ZERO);
    let mut work = StepWork::plain(&durations, 1);
    let apart = simulate(&schedule, &work).unwrap().timeline.end();
    for forward in 0..2 {
        for backward in 0..2 {
            work.pairs.insert((forward, backward), Nanos::new(2));
        }
    }
    let together = simulate(&schedule, &work).unwrap().timeline.end();
    let pairs = schedule.ranks()[0].iter().filter(|step| step.actions().count() == 2).count();
    assert_eq!(together + Nanos::new(pairs as u64), apart);
}

#[test]
fn work_of_another_size_is_refused() {
    let schedule = generate(ScheduleKind::OneFOneB, 2, 1, 1).unwrap();
    let work = StepWork::plain(&Durations::equal(PassTimes::UNIT, 3, Nanos::ZERO), 2);
    let error = simulate(&schedule, &work).unwrap_err().to_string();
    assert_eq!(error, "the schedule has 2 stages, but there is work for 3");
}
