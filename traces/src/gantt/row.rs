//! A track as boxes: its compute stream, and a lane for each other stream.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use ir::schedule::ActionKind;
use ir::units::Nanos;

use super::boxes::{Column, DrawnBox, FAR_APART, Look, RowPiece, Slot, TimeScale, pieces};
use crate::class::Class;
use crate::timeline::{Activity, Event, Stream, Track};

/// Pieces of a track.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Pieces of the compute stream.
    pub(super) compute: Vec<RowPiece>,
    /// Pieces of the other streams, in the order of the panel's lanes.
    pub(super) lanes: Vec<Vec<RowPiece>>,
    /// Number of stages of the track.
    pub(super) num_stages: u32,
    /// True if the visible part has idle time.
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
        let is_forward = |event: &Event| event.activity.kind() == Some(ActionKind::Forward);
        let lane = |stream: &Stream| {
            let events = track.events.iter().filter(|event| event.stream == *stream);
            let events: Vec<&Event> = events.filter(|event| event.end > event.start).collect();
            pieces(&events, scale, f64::INFINITY, |event| (look(event).0, None), is_forward)
        };
        Self {
            compute: pieces(&compute, scale, FAR_APART, look, is_forward),
            lanes: lanes.iter().map(lane).collect(),
            num_stages: stages.len() as u32,
            is_idle: is_idle(&compute, scale),
        }
    }

    /// Boxes of the compute stream.
    pub(super) fn boxes(&self) -> impl Iterator<Item = &DrawnBox> {
        self.compute.iter().filter_map(|piece| match piece {
            RowPiece::Box(drawn) => Some(drawn),
            RowPiece::Overlap(..) | RowPiece::Column(_) => None,
        })
    }

    /// Looks of all pieces.
    pub(super) fn looks(&self) -> BTreeSet<Look> {
        let mut looks = BTreeSet::new();
        for piece in self.compute.iter().chain(self.lanes.iter().flatten()) {
            match piece {
                RowPiece::Box(drawn) => looks.extend([drawn.look]),
                RowPiece::Column(column) => looks.extend(column.shares.keys()),
                RowPiece::Overlap(..) => {}
            }
        }
        looks
    }

    /// Returns whether events overlap on the compute stream.
    pub(super) fn has_halves(&self) -> bool {
        self.boxes().any(|drawn| drawn.slot != Slot::Whole)
    }

    /// Returns whether passes share a column with other looks or idle time.
    pub(super) fn has_columns(&self) -> bool {
        columns(&self.compute).any(|column| column.is_shared() && column.has_passes())
    }

    /// Returns whether exchanges share a column of a lane.
    pub(super) fn has_columns_in_lanes(&self) -> bool {
        self.lanes.iter().flat_map(|lane| columns(lane)).any(Column::is_shared)
    }
}

fn columns(pieces: &[RowPiece]) -> impl Iterator<Item = &Column> {
    pieces.iter().filter_map(|piece| match piece {
        RowPiece::Column(column) => Some(column),
        RowPiece::Box(_) | RowPiece::Overlap(..) => None,
    })
}

/// Number in the box of an event: a pass's micro-batch.
fn number(event: &Event) -> Option<u32> {
    match event.activity {
        Activity::Action(action) if action.kind.is_compute() => Some(action.micro_batch),
        _ => None,
    }
}

/// Index of each stage among the track's stages, in order. Waits may be for another rank's stage.
fn stages_of(track: &Track) -> BTreeMap<u32, u32> {
    let passes = track.events.iter().filter(|event| Class::of(event).is_pass());
    let stages: BTreeSet<u32> = passes.map(|event| event.activity.action().stage).collect();
    stages.into_iter().zip(0..).collect()
}

/// Returns whether a pixel or more of the visible part has no event.
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
