//! From events to boxes: what overlaps, and what is too thin to be seen alone.

use std::collections::BTreeMap;

use ir::units::Nanos;

use crate::palette::Rgb;
use crate::timeline::Event;

/// Where on the picture a time is.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeScale {
    pub(super) left: f64,
    pub(super) pixels_per_nano: f64,
}

impl TimeScale {
    pub(super) fn x(self, time: Nanos) -> f64 {
        self.left + time.as_f64() * self.pixels_per_nano
    }
}

/// Which part of its row a box has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    Whole,
    Upper,
    Lower,
}

impl Slot {
    pub(super) const ALL: [Self; 3] = [Self::Whole, Self::Upper, Self::Lower];
}

/// A box of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DrawnBox {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) color: Rgb,
    /// The number in it.
    pub(super) label: Option<u32>,
    /// Whether it stands for several events that are too thin to be seen alone.
    pub(super) is_sum: bool,
}

/// Boxes thinner than this, in CSS pixels, are not drawn one by one.
const THINNEST: f64 = 1.0;

/// The slot of each of a stream's events, which come by their start and take time: a whole row for
/// those alone, an upper and a lower half for those that overlap. Of two that overlap, `is_upper`
/// says which goes up where either could.
pub(super) fn slots(events: &[&Event], is_upper: impl Fn(&Event) -> bool) -> Vec<Slot> {
    let mut slots = Vec::with_capacity(events.len());
    let (mut upper_until, mut lower_until) = (Nanos::ZERO, Nanos::ZERO);
    let mut until = Nanos::ZERO;
    for (index, event) in events.iter().enumerate() {
        let meets_next = events.get(index + 1).is_some_and(|next| next.start < event.end);
        let slot = if event.start >= until && !meets_next {
            Slot::Whole
        } else if upper_until > event.start {
            Slot::Lower
        } else if lower_until > event.start || is_upper(event) {
            Slot::Upper
        } else {
            Slot::Lower
        };
        match slot {
            Slot::Upper => upper_until = upper_until.max(event.end),
            Slot::Lower => lower_until = lower_until.max(event.end),
            Slot::Whole => {}
        }
        until = until.max(event.end);
        slots.push(slot);
    }
    slots
}

/// The boxes of one slot's events, which come by their start. Thin ones share the pixels that they
/// fall into: each pixel takes the colour of what fills most of it.
pub(super) fn boxes<'a>(
    events: impl Iterator<Item = &'a Event>,
    scale: TimeScale,
    look: impl Fn(&Event) -> (Rgb, Option<u32>),
) -> Vec<DrawnBox> {
    let mut row = Row::default();
    for event in events {
        let (left, right) = (scale.x(event.start), scale.x(event.end));
        let (color, label) = look(event);
        if right - left >= THINNEST {
            row.flush();
            row.boxes.push(DrawnBox { left, right, color, label, is_sum: false });
        } else if right > left {
            let border = left.floor() + 1.0;
            row.add(left, right.min(border), color);
            if right > border {
                row.add(border, right, color);
            }
        }
    }
    row.flush();
    row.boxes
}

/// Boxes so far, and what has been seen of the pixel under way.
#[derive(Default)]
struct Row {
    boxes: Vec<DrawnBox>,
    pixel: f64,
    /// Where the first thin event in the pixel starts.
    first: f64,
    /// How much of the pixel each colour has.
    shares: BTreeMap<Rgb, f64>,
}

impl Row {
    fn add(&mut self, left: f64, right: f64, color: Rgb) {
        if left.floor() > self.pixel || self.shares.is_empty() {
            self.flush();
            (self.pixel, self.first) = (left.floor(), left);
        }
        *self.shares.entry(color).or_default() += right - left;
    }

    fn flush(&mut self) {
        let most = self.shares.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let Some((color, _)) = most.map(|(color, share)| (*color, *share)) else { return };
        let filled: f64 = self.shares.values().sum();
        self.shares.clear();
        // A pixel that is mostly idle shows what little there is at its place; a busy one is full.
        let (left, right) = if filled < THINNEST / 2.0 {
            (self.first, self.first + filled)
        } else {
            (self.pixel, self.pixel + 1.0)
        };
        match self.boxes.last_mut() {
            Some(last) if last.is_sum && last.color == color && last.right >= left => {
                last.right = last.right.max(right);
            }
            Some(last) if last.right > left => {
                let left = last.right.min(right);
                self.boxes.push(DrawnBox { left, right, color, label: None, is_sum: true });
            }
            _ => self.boxes.push(DrawnBox { left, right, color, label: None, is_sum: true }),
        }
    }
}
