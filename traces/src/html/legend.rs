//! The kinds of event: what they are called and which colours they have.

use std::collections::BTreeSet;
use std::fmt;

use ir::schedule::ActionKind;

use crate::class::{Class, DataLane};
use crate::palette::Theme;
use crate::timeline::{Timeline, Track};

/// The kinds of event that occur, with their colours.
pub(super) struct Legend<'a>(pub(super) &'a [&'a Timeline]);

impl fmt::Display for Legend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = DataLane::of(self.0);
        for class in used(self.0) {
            let (key, name) = (key(class), class.name_beside(data));
            writeln!(f, "<li><i style=\"background:var(--{key})\"></i>{name}</li>")?;
        }
        let tracks = || self.0.iter().flat_map(|timeline| &timeline.tracks);
        writeln!(f, "<li><i class=\"idle\"></i>idle</li>")?;
        if tracks().any(|track| !track.memory.is_empty()) {
            writeln!(f, "<li><i class=\"memory\"></i>memory in use, its peak dotted</li>")?;
        }
        if tracks().any(|track| track.memory_capacity.is_some()) {
            writeln!(f, "<li><i class=\"capacity\"></i>memory capacity, where it is near</li>")?;
        }
        if tracks().any(has_several_stages) {
            writeln!(f, "<li>the later a stage of its rank, the paler</li>")?;
        }
        Ok(())
    }
}

/// Whether a rank has passes of several stages.
fn has_several_stages(track: &Track) -> bool {
    let passes = track.events.iter().filter(|event| Class::of(event).is_pass());
    let mut stages = passes.map(|event| event.activity.action().stage);
    stages.next().is_some_and(|first| stages.any(|stage| stage != first))
}

/// The kinds of event that take time.
pub(super) fn used(timelines: &[&Timeline]) -> BTreeSet<Class> {
    let tracks = timelines.iter().flat_map(|timeline| &timeline.tracks);
    let events = tracks.flat_map(|track| &track.events);
    events.filter(|event| event.end > event.start).map(Class::of).collect()
}

/// The colours of all kinds of event, in the light and in the dark, for the style sheet.
pub(super) fn colors() -> String {
    let color = |class: Class| {
        let [light, dark] = Theme::ALL.map(|theme| class.color(theme));
        format!("  --{}: light-dark({light}, {dark});\n", key(class))
    };
    format!(":root {{\n{}}}\n", Class::ALL.map(color).concat())
}

/// A class's name in the style sheet.
pub(super) fn key(class: Class) -> String {
    class.name().replace(' ', "-")
}

/// What an action does.
pub(super) const fn in_words(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Forward => "forward",
        ActionKind::Backward => "backward",
        ActionKind::InputGrad => "input gradient",
        ActionKind::WeightGrad => "weight gradient",
        ActionKind::SendForward => "send activations",
        ActionKind::RecvForward => "receive activations",
        ActionKind::SendBackward => "send gradients",
        ActionKind::RecvBackward => "receive gradients",
        ActionKind::Unshard => "gather parameters",
        ActionKind::Reshard => "free parameters",
        ActionKind::ReduceGrad => "reduce gradients",
        ActionKind::OptimizerStep => "optimizer step",
    }
}
