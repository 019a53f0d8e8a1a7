//! The panel of memory in use, with a curve for each track.

use ir::units::{Bytes, Nanos};

use super::boxes::TimeScale;
use super::evenly::evenly;
use super::options::TimeAxis;
use crate::canvas::{Align, Area, Drawing, TextStyle, Ticks, baseline_around};
use crate::palette::Theme;
use crate::timeline::{MemoryPoint, Track};

/// Height of the curves.
pub(super) const HEIGHT: f64 = 96.0;
/// Height of the heading above them.
pub(super) const HEADING: f64 = 20.0;

const SMALL: f64 = 10.0;

/// Largest number of curves; of more tracks, an evenly spaced selection is drawn.
const MOST_CURVES: u32 = 16;
/// Ratio of capacity to peak above which the capacity is not drawn: curves below it would be flat.
const MOST_ABOVE_PEAK: f64 = 2.5;

/// Unit of memory: GiB with a clock; without one, micro-batches in flight, a byte for each.
impl TimeAxis {
    /// Name of a curve.
    pub(super) const fn memory_name(self) -> &'static str {
        match self {
            Self::Clock => "memory",
            Self::Units(_) => "in flight",
        }
    }

    const fn memory_heading(self) -> &'static str {
        match self {
            Self::Clock => "memory in use (GiB)",
            Self::Units(_) => "in flight (micro-batches \u{d7} stages)",
        }
    }

    fn memory_value(self, bytes: Bytes) -> f64 {
        match self {
            Self::Clock => bytes.as_gib(),
            Self::Units(_) => bytes.as_f64(),
        }
    }
}

/// Tracks whose curves are drawn.
pub(super) fn chosen<'a>(tracks: &[&'a Track]) -> Vec<&'a Track> {
    let known = tracks.iter().copied().filter(|track| !track.memory.is_empty());
    evenly(&known.collect::<Vec<_>>(), MOST_CURVES)
}

/// The capacity, if curves are not far below it.
pub(super) fn drawn_capacity(tracks: &[&Track]) -> Option<Bytes> {
    let peak = tracks.iter().filter_map(|track| track.peak_memory()).max()?;
    capacity(tracks).filter(|capacity| capacity.as_f64() <= MOST_ABOVE_PEAK * peak.as_f64())
}

/// Returns whether a curve is hidden below an equal curve of a later rank.
pub(super) fn hides_curves(tracks: &[&Track]) -> bool {
    let curves = chosen(tracks);
    let mut pairs = curves.iter().enumerate();
    pairs.any(|(index, track)| curves[..index].iter().any(|before| before.memory == track.memory))
}

/// Least capacity of the tracks, if any is known.
pub(super) fn capacity(tracks: &[&Track]) -> Option<Bytes> {
    tracks.iter().filter_map(|track| track.memory_capacity).min()
}

/// Draws the panel into `area`, which has the width of the tracks.
pub(super) fn draw(
    drawing: &mut Drawing,
    tracks: &[&Track],
    area: Area,
    scale: TimeScale,
    end: Nanos,
    axis: TimeAxis,
    theme: Theme,
) {
    let capacity = drawn_capacity(tracks);
    let peak = tracks.iter().filter_map(|track| track.peak_memory()).max();
    let most = axis.memory_value(peak.max(capacity).unwrap_or_default());
    let most = if most > 0.0 { most * 1.06 } else { 1.0 };
    let y = |bytes: Bytes| area.bottom() - axis.memory_value(bytes) / most * area.height;

    let style = TextStyle { size: SMALL, align: Align::Left, color: theme.muted_text() };
    drawing.text(axis.memory_heading(), (area.left, area.top - 7.0), style);
    for (value, label) in Ticks::new(most, 5.0).iter() {
        let at = area.bottom() - value / most * area.height;
        drawing.fill(area.line_across(at), theme.grid());
        let style = TextStyle { align: Align::Right, ..style };
        drawing.text(&label, (area.left - 8.0, baseline_around(at, SMALL)), style);
    }
    let curves = chosen(tracks);
    let thickness = if curves.len() > 8 { 1.0 } else { 1.5 };
    for (index, track) in curves.iter().enumerate() {
        let points = steps(&track.memory, scale, end, y);
        drawing.steps(points, thickness, theme.ordered(index, curves.len()));
    }
    if let Some(capacity) = capacity {
        drawing.dashes(area.left, area.right(), y(capacity), theme.limit());
    }
}

/// A step curve with at most four points per pixel: its value at both ends, its highest and its lowest.
fn steps(
    memory: &[MemoryPoint],
    scale: TimeScale,
    end: Nanos,
    y: impl Fn(Bytes) -> f64,
) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let end = end.min(scale.to);
    let x = |point: &MemoryPoint| scale.x(point.time.min(end));
    // The value before the start is the first value.
    let before = memory.partition_point(|point| point.time <= scale.from).saturating_sub(1);
    let shown = memory.partition_point(|point| point.time <= end);
    let mut rest = memory.get(before..shown).unwrap_or_default();
    while let Some(first) = rest.first() {
        let (left, pixel) = (x(first), x(first).floor());
        let count = rest.iter().take_while(|point| x(point).floor() <= pixel).count();
        let (here, after) = rest.split_at(count);
        rest = after;
        if let Some((_, before)) = points.last() {
            points.push((left, *before));
        }
        let values = here.iter().map(|point| point.bytes);
        for extreme in [values.clone().max(), values.min()].into_iter().flatten() {
            if here.len() > 2 {
                points.push((left, y(extreme)));
            }
        }
        points.extend(here.last().map(|last| (left, y(last.bytes))));
    }
    let last = points.last().map(|(_, y)| (scale.x(end), *y));
    points.extend(last);
    points.dedup();
    points
}
