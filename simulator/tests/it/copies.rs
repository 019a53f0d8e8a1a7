//! Copies between a device and its host, before and after transfers.

use ir::collective::Collective;
use ir::schedule::{ScheduleKind, add_optimizer_steps, generate};
use ir::units::{Bytes, Nanos};
use simulator::{
    Durations, HostCopy, PassPart, PassParts, PassTimes, RankWork, Run, Simulation, StageWork,
    StepWork, Transfer, simulate,
};
use traces::timeline::{Activity, CopyDestination, Stream};

fn copied(time: u64) -> HostCopy {
    HostCopy { time: Nanos::new(time), bytes: Bytes::new(time) }
}

/// A transfer of `time`, with a copy before it and one after.
fn transfer(from_host: u64, time: u64, to_host: u64) -> PassPart {
    let transfer = Transfer::new(Collective::AllReduce, Nanos::new(time), Bytes::new(1));
    PassPart::Start(Transfer { from_host: copied(from_host), to_host: copied(to_host), ..transfer })
}

fn compute(time: u64) -> PassPart {
    PassPart::Run(Run::of_kernels(Nanos::new(time)))
}

/// One rank, one micro-batch: a forward of these parts, and no backward to speak of. Kernels lose a quarter of
/// their rate when overlapped with transfers.
fn forward(parts: impl IntoIterator<Item = PassPart>) -> Simulation {
    let schedule = generate(ScheduleKind::OneFOneB, 1, 1, 1).unwrap();
    let stage =
        StageWork { forward: parts.into_iter().collect::<PassParts>(), ..StageWork::default() };
    let ranks = vec![RankWork { multiplicity: 1, ..RankWork::default() }];
    let plain = StepWork::plain(&Durations::equal(PassTimes::default(), 1, Nanos::ZERO), 1);
    let work = StepWork { stages: vec![stage], ranks, slowdown_per_mille: 250, ..plain };
    simulate(&schedule, &work).unwrap()
}

/// When transfers, copies to the device and copies to the host are under way.
fn spans(simulation: &Simulation) -> [Vec<(u64, u64)>; 3] {
    let mut spans: [Vec<(u64, u64)>; 3] = Default::default();
    for event in &simulation.timeline.tracks[0].events {
        let of = match (event.stream, event.activity) {
            (Stream::Data, _) => 0,
            (Stream::Host, Activity::Copy { to: CopyDestination::Device, .. }) => 1,
            (Stream::Host, Activity::Copy { to: CopyDestination::Host, .. }) => 2,
            _ => continue,
        };
        spans[of].push((event.start.get(), event.end.get()));
    }
    spans
}

#[test]
fn a_transfer_waits_for_its_copy_and_is_followed_by_one() {
    let simulation = forward([transfer(10, 20, 30), PassPart::WaitForHost, compute(5)]);
    assert_eq!(spans(&simulation), [vec![(10, 30)], vec![(0, 10)], vec![(30, 60)]]);
    assert_eq!(simulation.timeline.end(), Nanos::new(65));
    let rank = &simulation.ranks[0];
    assert_eq!((rank.transfers.get(), rank.copies.get()), (20, 40));
    // The transfer alone is waited for.
    let simulation = forward([transfer(10, 20, 30), PassPart::Wait, compute(5)]);
    assert_eq!(simulation.timeline.tracks[0].busy(), Nanos::new(35));
    assert_eq!(simulation.timeline.end(), Nanos::new(60), "the step ends with its copies");
}

/// Copies each way follow each other, whatever transfers do.
#[test]
fn copies_are_a_queue_each_way() {
    let both = [transfer(10, 5, 40), transfer(10, 5, 40), PassPart::WaitForHost];
    let expected = [vec![(10, 15), (20, 25)], vec![(0, 10), (10, 20)], vec![(15, 55), (55, 95)]];
    assert_eq!(spans(&forward(both)), expected);
}

/// Kernels lose nothing where copies overlap them, and a third of what is left where the transfer does.
#[test]
fn copies_do_not_slow_kernels_down() {
    let simulation = forward([transfer(100, 0, 100), compute(50), PassPart::WaitForHost]);
    assert_eq!(simulation.ranks[0].slowed, Nanos::ZERO);
    assert_eq!(simulation.timeline.end(), Nanos::new(200));
    let simulation = forward([transfer(30, 60, 0), compute(90)]);
    // 30 ns alone, then 60 ns at three quarters of the rate: 15 ns are left of 90.
    assert_eq!(spans(&simulation)[0], vec![(30, 90)]);
    assert_eq!(simulation.ranks[0].slowed, Nanos::new(15));
}

/// What an update waits for: backward, the reduction of its gradients, their copy, and the first of the copies
/// before.
#[test]
fn copies_are_on_the_critical_path() {
    let schedule = add_optimizer_steps(&generate(ScheduleKind::OneFOneB, 1, 1, 1).unwrap());
    let mut work = StepWork::plain(&Durations::equal(PassTimes::UNIT, 1, Nanos::ZERO), 1);
    work.stages[0].backward =
        [compute(7), transfer(0, 20, 30), transfer(0, 5, 30)].into_iter().collect();
    work.stages[0].update = [PassPart::WaitForHost, compute(5)].into_iter().collect();
    let path = simulate(&schedule, &work).unwrap().critical_path;
    let spans: Vec<(Stream, u64, u64)> =
        path.iter().map(|step| (step.stream, step.start.get(), step.end.get())).collect();
    let (compute, data, host) = (Stream::Compute, Stream::Data, Stream::Host);
    let expected = [
        (compute, 0, 1),
        (compute, 1, 8),
        (data, 8, 28),
        (host, 28, 58),
        (host, 58, 88),
        (compute, 88, 93),
    ];
    assert_eq!(spans, expected);
}
