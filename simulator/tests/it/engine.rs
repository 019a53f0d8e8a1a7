//! The event loop: against the plain rule where nothing is shared, and by hand where something is.

use ir::collective::Collective;
use ir::schedule::{
    Schedule, ScheduleKind, add_communication, add_optimizer_steps, add_reduction, add_sharding,
    generate,
};
use ir::units::{Bytes, Nanos};
use proptest::prelude::*;
use simulator::{
    Durations, Messages, PassTimes, RankWork, Segment, SimulationError, StageWork, Transfer, Work,
    earliest, simulate,
};
use traces::timeline::{Activity, Stream, Timeline};

use super::laws::{fitting, passes};

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
        let mut work = Work::plain(&durations, schedule.num_ranks());
        work.messages = Messages::Queue;
        let queued = simulate(&schedule, &work).unwrap().timeline.end();
        prop_assert!(queued >= plain.makespan);
        prop_assert!(queued == plain.makespan || durations.send > Nanos::ZERO);
        work.messages = Messages::Delay;
        let full = simulate(&schedule, &work).unwrap();
        for (track, rank) in full.timeline.tracks.iter().zip(&plain.ranks) {
            prop_assert_eq!(track.busy(), rank.busy);
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
        let full = simulate(&schedule, &Work::plain(&durations, schedule.num_ranks())).unwrap();
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
        let full = simulate(&schedule, &Work::plain(&durations, schedule.num_ranks())).unwrap();
        let mut time = Nanos::ZERO;
        for step in &full.critical_path {
            prop_assert!(step.start == time || kind == ScheduleKind::DualPipe && step.start < time);
            time = step.end;
        }
        prop_assert_eq!(time, full.timeline.end());
    }

    /// Computing and waiting for collectives never add up to more than the step, though the two actions of
    /// an overlapped pair each have their own; and to all of it, on a rank alone.
    #[test]
    fn a_rank_does_one_thing_at_a_time(
        kind in 0_usize..14, p in 1_u32..6, m in 1_u32..10, v in 1_u32..4, passes in passes(),
        exchange in 1_u64..60,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let schedule = generate(kind, p, m, v).unwrap();
        let durations = Durations::equal(passes, schedule.num_stages(), Nanos::ZERO);
        let mut work = Work::plain(&durations, schedule.num_ranks());
        for (index, stage) in work.stages.iter_mut().enumerate() {
            let stream = [Stream::Tensor, Stream::Expert][index % 2];
            let whole = [&mut stage.backward, &mut stage.input_grad, &mut stage.weight_grad];
            for pass in whole.into_iter().chain([&mut stage.forward]) {
                let start = Segment::Start(transfer(stream, exchange));
                pass.extend([start, Segment::Wait(stream), Segment::Compute(Nanos::new(2))]);
            }
        }
        let full = simulate(&schedule, &work).unwrap();
        for times in &full.ranks {
            let spent = times.compute + times.update + times.waited.iter().copied().sum();
            prop_assert!(spent <= full.timeline.end(), "{kind}: {times:?}");
            prop_assert!(spent == full.timeline.end() || schedule.num_ranks() > 1, "{times:?}");
        }
    }

    /// Every pass on top changes nothing of the computation's order, and everything ends.
    #[test]
    fn whole_programs_run(
        kind in 0_usize..14, p in 1_u32..6, m in 1_u32..10, v in 1_u32..4, passes in passes(),
        gathered in 1_usize..4,
    ) {
        let kind = ScheduleKind::ALL[kind];
        let (p, m, v) = fitting(kind, p, m, v);
        let plain = add_communication(&generate(kind, p, m, v).unwrap());
        let schedule = add_sharding(&add_optimizer_steps(&add_reduction(&plain)), gathered);
        let durations = Durations::equal(passes, schedule.num_stages(), Nanos::new(3));
        let mut work = Work::plain(&durations, schedule.num_ranks());
        work.messages = Messages::Queue;
        for stage in &mut work.stages {
            stage.unshard = vec![transfer(Stream::Data, 20)];
            stage.reduce = vec![transfer(Stream::Data, 30)];
            stage.update = vec![Segment::Wait(Stream::Data), Segment::Compute(Nanos::new(5))];
            stage.gathered = Bytes::new(100);
        }
        let full = simulate(&schedule, &work).unwrap().timeline;
        let compute_only = simulate(&plain, &Work::plain(&durations, schedule.num_ranks()));
        prop_assert!(full.end() > compute_only.unwrap().timeline.end());
        for track in &full.tracks {
            prop_assert_eq!(track.memory.last().unwrap().bytes, Bytes::ZERO);
            streams_do_one_thing_at_a_time(&full);
        }
    }
}

fn streams_do_one_thing_at_a_time(timeline: &Timeline) {
    for track in &timeline.tracks {
        for stream in Stream::ALL.into_iter().filter(|stream| *stream != Stream::Compute) {
            let mut until = Nanos::ZERO;
            for event in track.events.iter().filter(|event| event.stream == stream) {
                assert!(event.start >= until, "{stream}: {event:?}");
                until = event.end;
            }
        }
    }
}

fn transfer(stream: Stream, time: u64) -> Transfer {
    let collective = Collective::AllReduce;
    Transfer { stream, collective, time: Nanos::new(time), ..Transfer::default() }
}

fn compute(time: u64) -> Segment {
    Segment::Compute(Nanos::new(time))
}

/// One rank, one micro-batch: a forward of these parts, and no backward to speak of.
fn forward(segments: Vec<Segment>, slowdown_per_mille: u32) -> Timeline {
    let schedule = generate(ScheduleKind::OneFOneB, 1, 1, 1).unwrap();
    let stage = StageWork { forward: segments, ..StageWork::default() };
    let ranks = vec![RankWork { num_alike: 1, ..RankWork::default() }];
    let (groups, messages) = (Vec::new(), Messages::Queue);
    let work = Work { stages: vec![stage], ranks, groups, messages, slowdown_per_mille };
    simulate(&schedule, &work).unwrap().timeline
}

/// When the transfers on each stream end.
fn ends(timeline: &Timeline, stream: Stream) -> Vec<u64> {
    let events = timeline.tracks[0].events.iter();
    let events = events.filter(|event| event.stream == stream);
    let is_transfer = |activity| matches!(activity, Activity::Collective { .. });
    events.filter(|event| is_transfer(event.activity)).map(|event| event.end.get()).collect()
}

#[test]
fn an_action_waits_for_its_collectives_or_not() {
    let tensor = Segment::Start(transfer(Stream::Tensor, 30));
    let wait = Segment::Wait(Stream::Tensor);
    let blocking = forward(vec![compute(10), tensor, wait, compute(20)], 0);
    assert_eq!(blocking.end(), Nanos::new(60));
    let beside = forward(vec![compute(10), tensor, compute(20), wait], 0);
    assert_eq!(beside.end(), Nanos::new(40));
    assert_eq!(ends(&beside, Stream::Tensor), [40]);
    // Without a wait, the action is over, and the step when the transfer is.
    let lone = forward(vec![tensor, compute(20)], 0);
    assert_eq!((lone.tracks[0].busy(), lone.end()), (Nanos::new(20), Nanos::new(30)));
}

/// A stream does one transfer after the other; two streams on one link share it; links of different
/// levels have nothing to do with each other.
#[test]
fn transfers_share_a_link() {
    let [tensor, data] = [Stream::Tensor, Stream::Data].map(|stream| transfer(stream, 100));
    let after_each_other = forward(vec![Segment::Start(tensor), Segment::Start(tensor)], 0);
    assert_eq!(ends(&after_each_other, Stream::Tensor), [100, 200]);
    let shared = forward(vec![Segment::Start(tensor), Segment::Start(data)], 0);
    assert_eq!([ends(&shared, Stream::Tensor), ends(&shared, Stream::Data)], [[200], [200]]);
    // Half of the first is over when the second begins; then both get half.
    let late = forward(vec![Segment::Start(tensor), compute(50), Segment::Start(data)], 0);
    assert_eq!([ends(&late, Stream::Tensor), ends(&late, Stream::Data)], [[150], [200]]);
    let other = Transfer { level: 1, ..data };
    let apart = forward(vec![Segment::Start(tensor), Segment::Start(other)], 0);
    assert_eq!([ends(&apart, Stream::Tensor), ends(&apart, Stream::Data)], [[100], [100]]);
}

/// 100 ns of communication at three quarters of the kernels' rate cost 25 ns of 1,000.
#[test]
fn communication_slows_kernels_down() {
    let tensor = Segment::Start(transfer(Stream::Tensor, 100));
    assert_eq!(forward(vec![tensor, compute(1000)], 250).end(), Nanos::new(1025));
    assert_eq!(forward(vec![tensor, compute(1000)], 0).end(), Nanos::new(1000));
    assert_eq!(forward(vec![compute(1000)], 250).end(), Nanos::new(1000));
}

/// Two pipeline ranks reduce the gradients of tied embeddings together: rank 1 is done first, as it
/// begins the backward, and waits for rank 0.
#[test]
fn a_collective_waits_for_all_of_its_ranks() {
    let schedule = add_reduction(&generate(ScheduleKind::OneFOneB, 2, 1, 1).unwrap());
    let passes = PassTimes::UNIT;
    let mut work = Work::plain(&Durations::equal(passes, 2, Nanos::ZERO), 2);
    work.groups = vec![vec![0, 1]];
    for stage in &mut work.stages {
        stage.reduce = vec![Transfer { group: Some(0), ..transfer(Stream::Data, 10) }];
    }
    let timeline = simulate(&schedule, &work).unwrap().timeline;
    for track in &timeline.tracks {
        let reduction = track.events.iter().find(|event| event.stream == Stream::Data).unwrap();
        assert_eq!((reduction.start, reduction.end), (Nanos::new(6), Nanos::new(16)));
    }
    // If rank 1 never comes to it, that is said.
    work.stages[1].reduce.clear();
    let error = simulate(&schedule, &work).unwrap_err();
    assert!(matches!(error, SimulationError::Stuck { rank: 0, .. }), "{error}");
}

/// Of an overlapped pair, one computes while the other communicates.
#[test]
fn overlapped_actions_hide_each_others_communication() {
    let schedule = generate(ScheduleKind::DualPipeV, 1, 2, 2).unwrap();
    let apart = generate(ScheduleKind::Zbv, 1, 2, 2).unwrap();
    let parts = |times: u64| {
        let all_to_all = Segment::Start(transfer(Stream::Expert, 100));
        [compute(100 * times), all_to_all, Segment::Wait(Stream::Expert)].repeat(4)
    };
    let [one, two] = [1, 2].map(parts);
    let stage = StageWork {
        forward: one.clone(),
        backward: two,
        input_grad: one.clone(),
        weight_grad: vec![compute(400)],
        ..StageWork::default()
    };
    let ranks = vec![RankWork { num_alike: 1, ..RankWork::default() }];
    let groups = Vec::new();
    let messages = Messages::Queue;
    let work = Work { stages: vec![stage; 2], ranks, groups, messages, slowdown_per_mille: 0 };
    let overlapped = simulate(&schedule, &work).unwrap().timeline.end();
    let one_by_one = simulate(&apart, &work).unwrap().timeline.end();
    assert!(overlapped < one_by_one, "{overlapped} and {one_by_one}");
}

#[test]
fn work_of_another_size_is_refused() {
    let schedule = generate(ScheduleKind::OneFOneB, 2, 1, 1).unwrap();
    let work = Work::plain(&Durations::equal(PassTimes::UNIT, 3, Nanos::ZERO), 2);
    let error = simulate(&schedule, &work).unwrap_err().to_string();
    assert_eq!(error, "the schedule has 2 stages, but there is work for 3");
}
