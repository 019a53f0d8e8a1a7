//! A track as boxes: its compute, and a lane for each other stream.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use ir::schedule::ActionKind;
use ir::units::Nanos;

use super::boxes::{DrawnBox, Look, Slot, TimeScale, boxes, slots};
use crate::class::Class;
use crate::timeline::{Activity, Event, Stream, Track};

/// What is drawn of a track.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Compute, by the part of the row that it has.
    pub(super) compute: Vec<(Slot, Vec<DrawnBox>)>,
    /// The other streams, in the order of the panel's lanes.
    pub(super) lanes: Vec<Vec<DrawnBox>>,
    /// How many stages the track has.
    pub(super) num_stages: u32,
    /// Whether there is idle time in what is shown of it.
    pub(super) is_idle: bool,
}

impl Row {
    pub(super) fn new(track: &Track, lanes: &[Stream], scale: TimeScale) -> Self {
        let stages = stages_of(track);
        let look = |event: &Event| {
            let nth = stages.get(&event.activity.action().stage).copied().unwrap_or_default();
            let class = Class::of(event);
            (Look { class, nth: if class.is_pass() { nth } else { 0 } }, number(event))
        };
        let compute = track.events.iter().filter(|event| event.stream == Stream::Compute);
        let compute: Vec<&Event> = compute.filter(|event| event.end > event.start).collect();
        let slots = slots(&compute, |event| event.activity.kind() == Some(ActionKind::Forward));
        let of_slot = |slot: Slot| {
            let events = compute.iter().zip(&slots);
            let events = events.filter(|(_, of)| **of == slot).map(|(event, _)| *event);
            (slot, boxes(events, scale, look))
        };
        let lane = |stream: &Stream| {
            let events = track.events.iter().filter(|event| event.stream == *stream);
            boxes(events, scale, |event| (look(event).0, None))
        };
        Self {
            compute: Slot::ALL.map(of_slot).into(),
            lanes: lanes.iter().map(lane).collect(),
            num_stages: stages.len() as u32,
            is_idle: is_idle(&compute, scale),
        }
    }

    /// All that is drawn.
    pub(super) fn boxes(&self) -> impl Iterator<Item = &DrawnBox> {
        self.compute.iter().flat_map(|(_, boxes)| boxes).chain(self.lanes.iter().flatten())
    }

    /// Whether some of it overlaps on the compute stream.
    pub(super) fn has_halves(&self) -> bool {
        self.compute.iter().any(|(slot, boxes)| *slot != Slot::Whole && !boxes.is_empty())
    }
}

/// The number in the box of an event: a pass's micro-batch.
fn number(event: &Event) -> Option<u32> {
    match event.activity {
        Activity::Action(action) if action.kind.is_compute() => Some(action.micro_batch),
        _ => None,
    }
}

/// Which of the track's stages each is, in their order. What a rank waits for may be of another's stage.
fn stages_of(track: &Track) -> BTreeMap<u32, u32> {
    let passes = track.events.iter().filter(|event| Class::of(event).is_pass());
    let stages: BTreeSet<u32> = passes.map(|event| event.activity.action().stage).collect();
    stages.into_iter().zip(0..).collect()
}

/// Whether a pixel or more of what is shown has no event.
fn is_idle(compute: &[&Event], scale: TimeScale) -> bool {
    const LEAST: f64 = 1.0;
    let mut until = scale.from;
    for event in compute.iter().filter(|event| scale.shows(event)) {
        if is_seen(until, event.start, scale, LEAST) {
            return true;
        }
        until = until.max(event.end);
    }
    is_seen(until, scale.to, scale, LEAST)
}

fn is_seen(from: Nanos, to: Nanos, scale: TimeScale, least: f64) -> bool {
    from < to && scale.x(to) - scale.x(from) >= least
}
