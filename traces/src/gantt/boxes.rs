//! Pieces of a row, made from events, of which some overlap and some are too narrow to be seen alone.

use std::collections::BTreeMap;

use ir::units::Nanos;

use crate::class::Class;
use crate::timeline::Event;

/// Scale of the time axis: `from` at the left edge of the plot, `to` at the right.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeScale {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

impl TimeScale {
    /// Position of a time; for a time outside of the axis, the nearer edge.
    pub(super) fn x(self, time: Nanos) -> f64 {
        let since = time.clamp(self.from, self.to).saturating_sub(self.from);
        self.left + since.as_f64() * self.pixels_per_nano()
    }

    pub(super) fn pixels_per_nano(self) -> f64 {
        (self.right - self.left) / self.to.saturating_sub(self.from).as_f64().max(1.0)
    }

    pub(super) fn shows(self, event: &Event) -> bool {
        event.start < self.to && event.end > self.from
    }
}

/// Fill of a box: its class and, for passes, the index among its rank's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Look {
    pub(super) class: Class,
    pub(super) nth: u32,
}

/// Part of a row that a box fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    Whole,
    Upper,
    Lower,
}

/// A box of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DrawnBox {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) slot: Slot,
    pub(super) look: Look,
    /// Number in the box.
    pub(super) label: Option<u32>,
}

/// Some pixels of a row with events too narrow to be seen one by one, as shares of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) left: f64,
    pub(super) right: f64,
    /// Share of the column's time of each look; the rest up to 1 is idle. Of two events at the same time, each has
    /// half.
    pub(super) shares: BTreeMap<Look, f64>,
}

/// Piece of a row or a lane, ordered from left to right.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RowPiece {
    /// An event.
    Box(DrawnBox),
    /// Left and right end of overlapping events. Their boxes follow, and do not fill it where one of them runs alone.
    Overlap(f64, f64),
    /// Events in shared pixels.
    Column(Column),
}

/// Width in CSS pixels below which events are not drawn one by one.
const NARROWEST: f64 = 2.0;
/// Width of a column, in CSS pixels. Narrower ones would have too few events, with shares that jump from each to the
/// next.
pub(super) const COLUMN: f64 = 4.0;
/// Distance from which narrow passes do not share columns.
pub(super) const FAR_APART: f64 = 2.0 * COLUMN;

/// Pieces of a stream's events, which are ordered by start and take time. Narrow events that are `far_apart` do not
/// share columns. Of two events that overlap, `is_upper` chooses the upper one where both orders are possible.
pub(super) fn pieces(
    events: &[&Event],
    scale: TimeScale,
    far_apart: f64,
    look: impl Fn(&Event) -> (Look, Option<u32>),
    is_upper: impl Fn(&Event) -> bool,
) -> Vec<RowPiece> {
    let mut builder = PieceBuilder::new(scale, far_apart);
    for cluster in clusters(events) {
        if !cluster.iter().any(|event| scale.shows(event)) {
            continue;
        }
        let total: f64 = cluster.iter().map(|event| event.duration().as_f64()).sum();
        if total * scale.pixels_per_nano() < NARROWEST * cluster.len() as f64 {
            builder.add(cluster, scale, |event| look(event).0);
            continue;
        }
        builder.flush();
        let place = |event: &Event| (scale.x(event.start), scale.x(event.end));
        if cluster.len() > 1 {
            let right = cluster.iter().map(|event| place(event).1).fold(0.0, f64::max);
            builder.pieces.push(RowPiece::Overlap(place(cluster[0]).0, right));
        }
        for (event, slot) in cluster.iter().zip(slots(cluster, &is_upper)) {
            let ((left, right), (look, label)) = (place(event), look(event));
            if right > left {
                builder.pieces.push(RowPiece::Box(DrawnBox { left, right, slot, look, label }));
            }
        }
    }
    builder.flush();
    builder.pieces
}

/// Splits events into clusters, each of events that overlap.
fn clusters<'a, 'b>(mut events: &'b [&'a Event]) -> impl Iterator<Item = &'b [&'a Event]> {
    std::iter::from_fn(move || {
        let mut until = events.first()?.end;
        let count = events.iter().take_while(|event| {
            let is_first = std::ptr::eq(**event, events[0]);
            let meets = is_first || event.start < until;
            until = until.max(event.end);
            meets
        });
        let (cluster, rest) = events.split_at(count.count());
        events = rest;
        Some(cluster)
    })
}

/// Slot of each event in a cluster: the whole row for one alone, else the upper or the lower half.
fn slots(cluster: &[&Event], is_upper: impl Fn(&Event) -> bool) -> Vec<Slot> {
    if cluster.len() == 1 {
        return vec![Slot::Whole];
    }
    let (mut upper_until, mut lower_until) = (Nanos::ZERO, Nanos::ZERO);
    let slot = |event: &&Event| {
        let goes_up = upper_until <= event.start && (lower_until > event.start || is_upper(event));
        let until = if goes_up { &mut upper_until } else { &mut lower_until };
        *until = event.end.max(*until);
        if goes_up { Slot::Upper } else { Slot::Lower }
    };
    cluster.iter().map(slot).collect()
}

/// Builder of pieces, with the narrow events that are not in a piece yet.
struct PieceBuilder {
    pieces: Vec<RowPiece>,
    /// Origin of columns, and end of the plot.
    origin: f64,
    end: f64,
    far_apart: f64,
    /// Left and right end of the narrow events.
    reach: Option<(f64, f64)>,
    /// Pixels in each column, by look.
    pixels: BTreeMap<u32, BTreeMap<Look, f64>>,
}

impl PieceBuilder {
    const fn new(scale: TimeScale, far_apart: f64) -> Self {
        let TimeScale { left: origin, right: end, .. } = scale;
        Self { pieces: Vec::new(), origin, end, far_apart, reach: None, pixels: BTreeMap::new() }
    }

    /// Adds one narrow event, or several that overlap. Events that run at the same time have equal parts.
    fn add(&mut self, cluster: &[&Event], scale: TimeScale, look: impl Fn(&Event) -> Look) {
        let mut times: Vec<Nanos> = cluster.iter().flat_map(|it| [it.start, it.end]).collect();
        times.sort_unstable();
        times.dedup();
        for pair in times.windows(2) {
            let running = || cluster.iter().filter(|it| it.start < pair[1] && it.end > pair[0]);
            let part = 1.0 / running().count().max(1) as f64;
            let (left, right) = (scale.x(pair[0]), scale.x(pair[1]));
            for event in running().filter(|_| right > left) {
                self.add_part(left, right, look(event), part);
            }
        }
    }

    fn add_part(&mut self, left: f64, right: f64, look: Look, part: f64) {
        if self.reach.is_some_and(|(_, until)| left - until > self.far_apart) {
            self.flush();
        }
        let (from, until) = self.reach.unwrap_or((left, right));
        self.reach = Some((from, until.max(right)));
        let mut left = left;
        while left < right {
            let column = ((left - self.origin) / COLUMN).floor().max(0.0);
            let mut border = self.origin + (column + 1.0) * COLUMN;
            // After rounding, the border may be at the left end.
            if border <= left {
                border = right;
            }
            let looks = self.pixels.entry(column as u32).or_default();
            *looks.entry(look).or_default() += (right.min(border) - left) * part;
            left = border;
        }
    }

    fn flush(&mut self) {
        let Some((mut from, mut until)) = self.reach.take() else { return };
        if self.far_apart == f64::INFINITY {
            (from, until) = (self.origin, self.end);
        }
        for (column, mut shares) in std::mem::take(&mut self.pixels) {
            let left = (self.origin + f64::from(column) * COLUMN).max(from);
            let right = (self.origin + f64::from(column + 1) * COLUMN).min(until);
            if right > left {
                for share in shares.values_mut() {
                    *share /= right - left;
                }
                self.pieces.push(RowPiece::Column(Column { left, right, shares }));
            }
        }
    }
}

impl Column {
    /// Returns whether the column has several looks, or one and idle time.
    pub(super) fn is_shared(&self) -> bool {
        const FULL: f64 = 0.99;
        self.shares.len() > 1 || self.shares.values().sum::<f64>() < FULL
    }

    pub(super) fn has_passes(&self) -> bool {
        self.shares.keys().any(|look| look.class.is_pass())
    }
}
