//! Timelines to test with: random ones, and schedules with every action as early as it can be.

use std::collections::BTreeMap;

use ir::collective::Collective;
use ir::schedule::{
    Action, ActionKind, Schedule, ScheduleKind, ScheduleStep, add_communication, generate,
};
use ir::units::{Bytes, Nanos};
use proptest::prelude::*;
use traces::timeline::{Activity, Event, MemoryPoint, Stream, Timeline, Track};

/// Duration of a forward.
const FORWARD: u64 = 1_234_567;

/// Duration of a message.
const MESSAGE: u64 = 150_003;

/// A schedule's timeline with messages, tensor-parallel collectives and memory.
pub(crate) fn pipeline(kind: ScheduleKind, ranks: u32, micro_batches: u32) -> Timeline {
    let schedule = generate(kind, ranks, micro_batches, kind.default_virtual_stages()).unwrap();
    let schedule = add_communication(&schedule);
    let mut run = Run { schedule: &schedule, done: BTreeMap::new() };
    let mut tracks: Vec<Track> = (0..ranks).map(track).collect();
    let mut at = vec![(0, 0); ranks as usize];
    // Round after round, each rank goes on until it waits for another.
    loop {
        let before: usize = at.iter().map(|(step, _)| step).sum();
        for (rank, (step, time)) in at.iter_mut().enumerate() {
            while let Some(next) = schedule.ranks()[rank].get(*step)
                && run.take(&mut tracks[rank], *next, time)
            {
                *step += 1;
            }
        }
        let after: usize = at.iter().map(|(step, _)| step).sum();
        if before == after {
            break;
        }
    }
    for track in &mut tracks {
        track.events.sort_by_key(|event| event.start);
        add_memory(track);
    }
    let title = format!("{kind}, {ranks} ranks, {micro_batches} micro-batches");
    let work = format!("{micro_batches} micro-batches on {ranks} ranks");
    Timeline { title, work, tracks, ..Timeline::default() }
}

fn track(rank: u32) -> Track {
    Track {
        name: format!("pipeline rank {rank}"),
        rank: rank * 8,
        num_ranks: 8,
        memory_capacity: Some(Bytes::new(80 << 30)),
        ..Track::default()
    }
}

struct Run<'a> {
    schedule: &'a Schedule,
    /// When the result of each action is there.
    done: BTreeMap<Action, u64>,
}

impl Run<'_> {
    /// Runs a step at the end of what its rank does; false if something is not there yet.
    fn take(&mut self, track: &mut Track, step: ScheduleStep, time: &mut u64) -> bool {
        let Some(ready) =
            step.actions().map(|action| self.ready(action)).collect::<Option<Vec<u64>>>()
        else {
            return false;
        };
        let begin = *time;
        for (action, ready) in step.actions().zip(ready) {
            let start = begin.max(ready);
            // A receive waits from when its rank comes to it, a send from its action's end.
            let (stream, start, end) = match action.kind {
                kind if kind.is_send() => (Stream::Send, ready, ready + MESSAGE),
                kind if kind.is_message() => (Stream::Receive, ready - MESSAGE, ready),
                ActionKind::Backward => (Stream::Compute, start, start + 2 * FORWARD + 77),
                _ => (Stream::Compute, start, start + FORWARD),
            };
            let bytes = if action.kind.is_message() { 16 << 20 } else { 0 };
            let activity = Activity::Action(action);
            let (start_time, end_time) = (Nanos::new(start), Nanos::new(end));
            let bytes = Bytes::new(bytes);
            let event = Event { start: start_time, end: end_time, stream, activity, bytes };
            track.events.push(event);
            if stream == Stream::Compute {
                *time = (*time).max(end);
                track.events.push(Event {
                    start: Nanos::new(end - 200_000),
                    stream: Stream::Tensor,
                    activity: Activity::Collective { collective: Collective::AllReduce, action },
                    bytes: Bytes::new(33_554_432),
                    ..event
                });
            }
            self.done.insert(action, end);
        }
        true
    }

    /// When what an action needs is there, if it is made.
    fn ready(&self, action: Action) -> Option<u64> {
        let Action { stage, micro_batch, kind } = action;
        let of = |stage, kind| self.done.get(&Action { stage, kind, micro_batch }).copied();
        let backward =
            |stage| of(stage, ActionKind::Backward).or_else(|| of(stage, ActionKind::InputGrad));
        let rank = |stage| self.schedule.rank(stage, micro_batch);
        match kind {
            ActionKind::Forward if stage == 0 => Some(0),
            ActionKind::Forward if rank(stage - 1) == rank(stage) => {
                of(stage - 1, ActionKind::Forward)
            }
            ActionKind::Forward => of(stage, ActionKind::RecvForward),
            ActionKind::Backward | ActionKind::InputGrad
                if stage + 1 == self.schedule.num_stages() =>
            {
                Some(0)
            }
            ActionKind::Backward | ActionKind::InputGrad if rank(stage + 1) == rank(stage) => {
                backward(stage + 1)
            }
            ActionKind::Backward | ActionKind::InputGrad => of(stage, ActionKind::RecvBackward),
            ActionKind::SendForward => of(stage, ActionKind::Forward),
            ActionKind::SendBackward => backward(stage),
            ActionKind::RecvForward => of(stage - 1, ActionKind::SendForward),
            ActionKind::RecvBackward => of(stage + 1, ActionKind::SendBackward),
            _ => Some(0),
        }
    }
}

/// Memory that each forward takes and the end of its backward frees.
fn add_memory(track: &mut Track) {
    const BASE: u64 = 40 << 30;
    const ACTIVATIONS: u64 = 6 << 30;
    let mut changes: Vec<(Nanos, bool)> = track
        .events
        .iter()
        .filter_map(|event| match event.activity.kind()? {
            ActionKind::Forward => Some((event.start, true)),
            ActionKind::Backward | ActionKind::WeightGrad => Some((event.end, false)),
            _ => None,
        })
        .collect();
    changes.sort_unstable();
    let mut bytes = Bytes::new(BASE);
    track.memory.push(MemoryPoint { time: Nanos::ZERO, bytes });
    for (time, is_more) in changes {
        bytes =
            if is_more { bytes + Bytes::new(ACTIVATIONS) } else { bytes - Bytes::new(ACTIVATIONS) };
        track.memory.push(MemoryPoint { time, bytes });
    }
}

/// A timeline with one event.
pub(crate) fn one_event() -> Timeline {
    let event = Event {
        start: Nanos::new(1),
        end: Nanos::new(1_002_003),
        stream: Stream::Compute,
        activity: Activity::Action("0F0".parse().unwrap()),
        bytes: Bytes::ZERO,
    };
    let track =
        Track { events: vec![event], name: "rank 0".into(), num_ranks: 1, ..Track::default() };
    Timeline { title: "one".into(), tracks: vec![track], ..Timeline::default() }
}

/// Any timeline, with events and memory in order of time and nothing else in order.
pub(crate) fn any_timeline() -> impl Strategy<Value = Timeline> {
    ([".*", ".*", ".*", ".*"], prop::collection::vec(any_track(), 0..4)).prop_map(
        |([title, work, setting, remark], tracks)| Timeline {
            title,
            work,
            setting,
            remark,
            tracks,
        },
    )
}

fn any_track() -> impl Strategy<Value = Track> {
    let point = (any_time(), any::<u64>())
        .prop_map(|(time, bytes)| MemoryPoint { time, bytes: Bytes::new(bytes) });
    let events = prop::collection::vec(any_event(), 0..12);
    let memory = prop::collection::vec(point, 0..6);
    (".*", any::<[u32; 2]>(), events, memory, prop::option::of(any::<u64>())).prop_map(
        |(name, [rank, num_ranks], mut events, mut memory, capacity)| {
            events.sort_by_key(|event| event.start);
            memory.sort_by_key(|point| point.time);
            Track {
                name,
                rank,
                num_ranks,
                events,
                memory,
                memory_capacity: capacity.map(Bytes::new),
            }
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let stream = prop::sample::select(Stream::ALL.to_vec());
    (any_time(), any_time(), stream, any_activity(), any::<u64>()).prop_map(
        |(one, other, stream, activity, bytes)| {
            let (start, end) = (one.min(other), one.max(other));
            Event { start, end, stream, activity, bytes: Bytes::new(bytes) }
        },
    )
}

fn any_time() -> impl Strategy<Value = Nanos> {
    prop_oneof![0..20_u64, 0..1_000_000_u64, 0..=1_u64 << 53].prop_map(Nanos::new)
}

fn any_activity() -> impl Strategy<Value = Activity> {
    let kind = prop::sample::select(ActionKind::ALL.to_vec());
    let number = || prop_oneof![0..4_u32, any::<u32>()];
    let action = (number(), kind, number()).prop_map(|(stage, kind, micro_batch)| {
        let micro_batch = if kind.has_micro_batch() { micro_batch } else { 0 };
        Action { stage, kind, micro_batch }
    });
    let collective = prop::option::of(prop::sample::select(Collective::ALL.to_vec()));
    (action, collective).prop_map(|(action, collective)| match collective {
        Some(collective) => Activity::Collective { collective, action },
        None => Activity::Action(action),
    })
}
