//! Timelines to draw: schedules whose actions start as early as they can.

use std::collections::BTreeMap;

use ir::schedule::{
    Action, ActionKind, Schedule, ScheduleKind, ScheduleStep, add_communication, generate,
};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Event, MemoryPoint, Stream, Timeline, Track};

/// The parts that an action takes: ten for each pass, a full backward being two, and two for a message.
fn parts(kind: ActionKind) -> u64 {
    match kind {
        ActionKind::Backward => 20,
        kind if kind.is_compute() => 10,
        _ => 0,
    }
}

/// The parts that a message takes.
const SEND: u64 = 2;

/// The timeline of a family's schedule, every part lasting `nanos`.
pub(crate) fn timeline(kind: ScheduleKind, p: u32, m: u32, v: u32, nanos: u64) -> Timeline {
    let schedule = add_communication(&generate(kind, p, m, v).unwrap());
    let mut timeline = earliest(&schedule, nanos);
    timeline.title = format!("{}, {p} pipeline ranks, {m} micro-batches", kind.name());
    timeline
}

/// Every step as soon as its rank is free and its inputs are there.
pub(crate) fn earliest(schedule: &Schedule, nanos: u64) -> Timeline {
    let mut run = Run {
        schedule,
        nanos,
        done: BTreeMap::new(),
        tracks: (0..schedule.num_ranks()).map(track).collect(),
        free: vec![0; schedule.num_ranks() as usize],
    };
    let mut next = vec![0; schedule.num_ranks() as usize];
    let mut progress = true;
    while progress {
        progress = false;
        for (rank, steps) in schedule.ranks().iter().enumerate() {
            while let Some(step) = steps.get(next[rank])
                && run.take(rank, *step)
            {
                next[rank] += 1;
                progress = true;
            }
        }
    }
    for track in &mut run.tracks {
        track.events.sort_by_key(|event| event.start);
        track.memory = memory(&track.events);
    }
    Timeline { work: "a step".to_owned(), tracks: run.tracks, ..Timeline::default() }
}

fn track(rank: u32) -> Track {
    Track {
        name: format!("pipeline rank {rank}"),
        rank,
        num_ranks: 1,
        memory_capacity: Some(Bytes::new(80 << 30)),
        ..Track::default()
    }
}

/// Each chunk of a micro-batch keeps 4 GiB from the end of its forward to the end of its backward.
fn memory(events: &[Event]) -> Vec<MemoryPoint> {
    let mut changes: Vec<(Nanos, i64)> = Vec::new();
    for event in events.iter().filter(|event| event.stream == Stream::Compute) {
        match event.activity.action().kind {
            ActionKind::Forward => changes.push((event.end, 1)),
            ActionKind::Backward | ActionKind::WeightGrad => changes.push((event.end, -1)),
            _ => {}
        }
    }
    changes.sort_unstable();
    let mut held = 0;
    let start = MemoryPoint { time: Nanos::ZERO, bytes: Bytes::new(20 << 30) };
    let points = changes.into_iter().map(|(time, change)| {
        held += change;
        MemoryPoint {
            time,
            bytes: Bytes::new((20 << 30) + held.max(0).cast_unsigned() * (4 << 30)),
        }
    });
    std::iter::once(start).chain(points).collect()
}

struct Run<'a> {
    schedule: &'a Schedule,
    nanos: u64,
    /// When each action's result is there for its own rank.
    done: BTreeMap<Action, u64>,
    tracks: Vec<Track>,
    free: Vec<u64>,
}

impl Run<'_> {
    /// Runs a step if all that it needs is known.
    fn take(&mut self, rank: usize, step: ScheduleStep) -> bool {
        let ready: Option<Vec<u64>> = step.actions().map(|action| self.ready(action)).collect();
        let Some(ready) = ready else { return false };
        let both = ready.into_iter().max().unwrap_or(0).max(self.free[rank]);
        for action in step.actions() {
            let message = action.kind.is_message();
            let cost = if message { SEND } else { parts(action.kind) };
            let start = if message { self.ready(action).unwrap() } else { both };
            // Two that overlap take as long as one after the other would.
            let num_actions = step.actions().count() as u64;
            let end = start + cost * num_actions;
            self.done.insert(action, end);
            if !message {
                self.free[rank] = self.free[rank].max(end);
            }
            let stream = match action.kind {
                kind if kind.is_send() => Stream::Send,
                kind if kind.is_message() => Stream::Receive,
                _ => Stream::Compute,
            };
            self.tracks[rank].events.push(Event {
                start: Nanos::new(start * self.nanos),
                end: Nanos::new(end * self.nanos),
                stream,
                activity: Activity::Action(action),
                bytes: Bytes::ZERO,
            });
        }
        true
    }

    /// When the inputs of an action are there, if that is known.
    fn ready(&self, action: Action) -> Option<u64> {
        let Action { stage, kind, micro_batch } = action;
        let end = |stage: u32, kinds: &[ActionKind]| {
            kinds.iter().find_map(|kind| self.done.get(&Action { stage, kind: *kind, micro_batch }))
        };
        let rank = |stage| self.schedule.rank(stage, micro_batch);
        let last = self.schedule.num_stages() - 1;
        let input_grad = [ActionKind::Backward, ActionKind::InputGrad];
        match kind {
            ActionKind::Forward if stage > 0 && rank(stage - 1) != rank(stage) => {
                end(stage, &[ActionKind::RecvForward]).copied()
            }
            ActionKind::Forward if stage > 0 => end(stage - 1, &[ActionKind::Forward]).copied(),
            ActionKind::Backward | ActionKind::InputGrad if stage == last => {
                end(stage, &[ActionKind::Forward]).copied()
            }
            ActionKind::Backward | ActionKind::InputGrad if rank(stage + 1) != rank(stage) => {
                end(stage, &[ActionKind::RecvBackward]).copied()
            }
            ActionKind::Backward | ActionKind::InputGrad => end(stage + 1, &input_grad).copied(),
            ActionKind::SendForward => end(stage, &[ActionKind::Forward]).copied(),
            ActionKind::SendBackward => end(stage, &input_grad).copied(),
            ActionKind::RecvForward => {
                end(stage - 1, &[ActionKind::SendForward]).map(|end| end - SEND)
            }
            ActionKind::RecvBackward => {
                end(stage + 1, &[ActionKind::SendBackward]).map(|end| end - SEND)
            }
            _ => Some(0),
        }
    }
}
