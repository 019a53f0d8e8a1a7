//! Assignment of overlapping events to lanes.

use std::collections::BTreeMap;

use ir::units::Nanos;

use crate::timeline::{Event, Stream, Track};

/// Lane of each event of a track, from 0: the first free lane of its stream, so that events on one lane of a stream do
/// not overlap.
pub(crate) fn lanes(track: &Track) -> Vec<usize> {
    let mut busy_until: BTreeMap<Stream, Vec<Nanos>> = BTreeMap::new();
    let of_event = |event: &Event| {
        let lanes = busy_until.entry(event.stream).or_default();
        let lane = lanes.iter().position(|until| *until <= event.start).unwrap_or(lanes.len());
        lanes.resize(lanes.len().max(lane + 1), Nanos::ZERO);
        lanes[lane] = event.end;
        lane
    };
    track.events.iter().map(of_event).collect()
}
