//! What of a timeline is drawn, and how.

use ir::units::Nanos;

use crate::canvas::Paper;

/// How a timeline is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GanttOptions {
    /// Width, theme and pixels.
    pub paper: Paper,
    /// Height of the picture in CSS pixels; where there is none, tracks get the height that suits
    /// their number.
    pub height: Option<u32>,
    /// What the time axis counts.
    pub time_axis: TimeAxis,
    /// Whether streams other than compute have lanes.
    pub lanes: Visibility,
    /// Whether memory has a panel. It needs memory in the timeline in any case.
    pub memory: Visibility,
    /// The most tracks that are drawn. Of more, every second, third, ... is, and the picture says so.
    pub max_tracks: u32,
}

impl Default for GanttOptions {
    fn default() -> Self {
        Self {
            paper: Paper::default(),
            height: None,
            time_axis: TimeAxis::Clock,
            lanes: Visibility::Auto,
            memory: Visibility::Auto,
            max_tracks: 64,
        }
    }
}

/// What a time axis counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeAxis {
    /// Seconds, or the thousandths of them that suit the step.
    #[default]
    Clock,
    /// Steps of this length, without a unit: for schedules whose actions cost whole numbers.
    Units(Nanos),
}

/// Whether a part of a picture is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Where there is something to show, and room for it.
    #[default]
    Auto,
    /// Where there is something to show.
    Shown,
    /// Never.
    Hidden,
}
