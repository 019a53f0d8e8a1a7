//! The legend of a page, and the table of its ranks.

use std::collections::BTreeSet;
use std::fmt;

use ir::units::{Bytes, Nanos};

use super::Table;
use crate::class::{Class, DataLane};
use crate::gantt::TimeAxis;
use crate::timeline::{Event, Timeline, Track};

/// Legend of the classes of events that occur, with their colours.
pub(super) struct Legend<'a>(pub(super) &'a [&'a Timeline]);

impl fmt::Display for Legend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = DataLane::of(self.0);
        for class in used(self.0) {
            let (key, name) = (key(class), class.name_with(data));
            writeln!(f, "<li><i style=\"background:var(--{key})\"></i>{name}</li>")?;
        }
        let any = |holds: fn(&Track) -> bool| {
            self.0.iter().flat_map(|timeline| &timeline.tracks).any(holds)
        };
        writeln!(f, "<li><i class=\"idle\"></i>idle</li>")?;
        if any(|track| !track.memory.is_empty()) {
            writeln!(f, "<li><i class=\"memory\"></i>memory in use, its peak dotted</li>")?;
        }
        if any(|track| track.memory_capacity.is_some()) {
            writeln!(f, "<li><i class=\"capacity\"></i>memory capacity, where it is near</li>")?;
        }
        if any(has_several_stages) {
            writeln!(f, "<li>the later a stage of its rank, the paler</li>")?;
        }
        Ok(())
    }
}

/// Returns whether a rank has passes of several stages.
fn has_several_stages(track: &Track) -> bool {
    let passes = track.events.iter().filter(|event| Class::of(event).is_pass());
    let mut stages = passes.map(|event| event.activity.action().stage);
    stages.next().is_some_and(|first| stages.any(|stage| stage != first))
}

/// The classes of events that take time.
fn used(timelines: &[&Timeline]) -> BTreeSet<Class> {
    let tracks = timelines.iter().flat_map(|timeline| &timeline.tracks);
    let events = tracks.flat_map(|track| &track.events);
    events.filter(|event| event.end > event.start).map(Class::of).collect()
}

/// Name of a class in the style sheet.
pub(super) fn key(class: Class) -> String {
    class.name().replace(' ', "-")
}

/// Table of a timeline's ranks: their time by class of events, and their memory.
pub(super) fn summary(timeline: &Timeline, axis: TimeAxis) -> Table {
    let (classes, data) = (used(&[timeline]), DataLane::of(&[timeline]));
    let names = classes.iter().map(|class| class.name_with(data));
    let first = ["track", "ranks", "events", "busy", "busy %"].into_iter();
    let headings = first.chain(names).chain(["peak memory", "capacity"]);
    let (end, bubble) = (axis.write(timeline.end()), 100.0 * timeline.bubble_fraction());
    Table {
        caption: format!("{}: step of {end}, {bubble:.1} % bubble", timeline.title),
        headings: headings.map(str::to_owned).collect(),
        rows: timeline.tracks.iter().map(|track| row(timeline, track, &classes, axis)).collect(),
    }
}

fn row(
    timeline: &Timeline,
    track: &Track,
    classes: &BTreeSet<Class>,
    axis: TimeAxis,
) -> Vec<String> {
    let Track { name, rank, num_ranks, events, memory_capacity, .. } = track;
    let ranks = match num_ranks {
        0 | 1 => rank.to_string(),
        _ => format!("{rank} to {}", u64::from(*rank) + u64::from(*num_ranks) - 1),
    };
    let (busy, end) = (track.busy(), timeline.end().as_f64());
    let share = if end == 0.0 { 0.0 } else { 100.0 * busy.as_f64() / end };
    let first = [name.clone(), ranks, events.len().to_string(), axis.write(busy)];
    let time_of = |class: &Class| {
        let of_class = events.iter().filter(|event| Class::of(event) == *class);
        axis.write(of_class.map(Event::duration).sum::<Nanos>())
    };
    let memory = |bytes: Option<Bytes>| match (bytes, axis) {
        (None, _) => "unknown".to_owned(),
        (Some(bytes), TimeAxis::Clock) => bytes.to_string(),
        (Some(bytes), TimeAxis::Units(_)) => format!("{} in flight", bytes.get()),
    };
    let times = classes.iter().map(time_of);
    let memory = [track.peak_memory(), *memory_capacity].map(memory);
    first.into_iter().chain([format!("{share:.1}")]).chain(times).chain(memory).collect()
}
