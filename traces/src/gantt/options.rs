//! Options of a Gantt chart.

use ir::units::Nanos;

use crate::canvas::{DrawError, Paper};
use crate::timeline::{Activity, Timeline};

/// Options of a Gantt chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GanttOptions {
    /// Width, theme and pixel ratio.
    pub paper: Paper,
    /// Unit of the time axis.
    pub time_axis: TimeAxis,
    /// Visibility of lanes for streams other than compute.
    pub lanes: Visibility,
    /// Visibility of the memory panel, which needs memory in the timeline in any case.
    pub memory: Visibility,
    /// Part of the step that is drawn.
    pub window: Window,
    /// Largest number of tracks that are drawn. If there are more, an evenly spaced selection with the first and the
    /// last is drawn, and the picture says so.
    pub max_tracks: u32,
}

impl Default for GanttOptions {
    fn default() -> Self {
        Self {
            paper: Paper::default(),
            time_axis: TimeAxis::Clock,
            lanes: Visibility::Auto,
            memory: Visibility::Auto,
            window: Window::Whole,
            max_tracks: 64,
        }
    }
}

/// Unit of a time axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeAxis {
    /// Seconds, or decimal fractions that suit the step.
    #[default]
    Clock,
    /// Units of this length, without a name: for schedules whose actions cost whole numbers.
    Units(Nanos),
}

impl TimeAxis {
    /// Text of a time.
    pub(crate) fn write(self, time: Nanos) -> String {
        match self {
            Self::Clock => time.to_string().replace("us", "\u{b5}s"),
            Self::Units(unit) => {
                let units = time.as_f64() / unit.as_f64().max(1.0);
                format!("{} units", (units * 100.0).round() / 100.0)
            }
        }
    }
}

/// Part of a step that is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// The whole step.
    #[default]
    Whole,
    /// A span of time, up to the end of the step.
    Time {
        /// Start of the span.
        from: Nanos,
        /// End of the span.
        to: Nanos,
    },
    /// From the start until this number of first micro-batches have been through all their passes.
    FirstMicroBatches(u32),
}

/// Visibility of a part of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Shown where there is data and enough space.
    #[default]
    Auto,
    /// Shown where there is data.
    Shown,
    /// Never shown.
    Hidden,
}

impl Window {
    /// Start and end of the window, for timelines that share an axis.
    pub(crate) fn of(self, timelines: &[&Timeline]) -> Result<[Nanos; 2], DrawError> {
        let end = timelines.iter().map(|timeline| timeline.end()).max().unwrap_or_default();
        let (from, to) = match self {
            Self::Whole => return Ok([Nanos::ZERO, end]),
            Self::Time { from, to } => (from, to.min(end)),
            Self::FirstMicroBatches(count) => {
                let events = timelines.iter().flat_map(|it| &it.tracks).flat_map(|it| &it.events);
                let passes = events.filter(|event| match event.activity {
                    Activity::Action(action) => {
                        action.kind.is_compute() && action.micro_batch < count
                    }
                    _ => false,
                });
                (Nanos::ZERO, passes.map(|event| event.end).max().unwrap_or(end))
            }
        };
        if from >= to && end > Nanos::ZERO {
            return Err(DrawError::NothingThere { from, to, end });
        }
        Ok([from, to])
    }
}
