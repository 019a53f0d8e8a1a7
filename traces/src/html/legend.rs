//! The kinds of event: what they are called and which colours they have.

use std::collections::BTreeSet;
use std::fmt;

use crate::class::Class;
use crate::palette::Theme;
use crate::timeline::Timeline;

/// The kinds of event that occur, with their colours.
pub(super) struct Legend<'a>(pub(super) &'a [&'a Timeline]);

impl fmt::Display for Legend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tracks = self.0.iter().flat_map(|timeline| &timeline.tracks);
        let events = tracks.flat_map(|track| &track.events);
        let classes: BTreeSet<Class> = events.map(Class::of).collect();
        for class in classes {
            let (key, name) = (key(class), class.name());
            writeln!(f, "<li><i style=\"background:var(--{key})\"></i>{name}</li>")?;
        }
        Ok(())
    }
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
