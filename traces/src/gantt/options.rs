//! Options of a Gantt chart.

use ir::units::Nanos;

use crate::canvas::{DrawError, Paper};
use crate::timeline::{Activity, Timeline};

/// Options of a Gantt chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GanttOptions {
    /// Width, theme and pixels.
    pub paper: Paper,
    /// Unit of the time axis.
    pub time_axis: TimeAxis,
    /// Whether streams other than compute have lanes.
    pub lanes: Visibility,
    /// Whether memory has a panel. It needs memory in the timeline in any case.
    pub memory: Visibility,
    /// Which part of the step is drawn.
    pub window: Window,
    /// The most tracks that are drawn. Of more, so many are, evenly apart, with the first and the last,
    /// and the picture says so.
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
    /// Seconds, or the thousandths of them that suit the step.
    #[default]
    Clock,
    /// Steps of this length, without a unit: for schedules whose actions cost whole numbers.
    Units(Nanos),
}

impl TimeAxis {
    /// A time in words.
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

/// The part of a step that is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// All of it.
    #[default]
    Whole,
    /// From a time to another, or to the end if that comes first.
    Time {
        /// From when.
        from: Nanos,
        /// Until when.
        to: Nanos,
    },
    /// From the start until so many micro-batches, counted from 0, have been through all their passes.
    FirstMicroBatches(u32),
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

impl Window {
    /// From when until when that is, for timelines that share an axis.
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
