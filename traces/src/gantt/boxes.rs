//! From events to boxes: what overlaps, and what is too thin to be seen alone.

use std::collections::BTreeMap;

use ir::units::Nanos;

use crate::class::Class;
use crate::timeline::Event;

/// Where on the picture a time is: `from` at the left edge of the plot, `to` at the right.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeScale {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

impl TimeScale {
    /// The place of a time; of one that is not shown, the nearer edge.
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

/// What a box is filled with: what it shows and, of passes, of which of its rank's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Look {
    pub(super) class: Class,
    pub(super) nth: u32,
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
    pub(super) look: Look,
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
/// fall into: each pixel looks as what fills most of it.
pub(super) fn boxes<'a>(
    events: impl Iterator<Item = &'a Event>,
    scale: TimeScale,
    look: impl Fn(&Event) -> (Look, Option<u32>),
) -> Vec<DrawnBox> {
    let mut row = Row::default();
    for event in events.filter(|event| scale.shows(event)) {
        let (left, right) = (scale.x(event.start), scale.x(event.end));
        let (look, label) = look(event);
        if right - left >= THINNEST {
            row.flush();
            row.boxes.push(DrawnBox { left, right, look, label, is_sum: false });
        } else if right > left {
            let border = left.floor() + 1.0;
            row.add(left, right.min(border), look);
            if right > border {
                row.add(border, right, look);
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
    /// How much of the pixel each look has.
    shares: BTreeMap<Look, f64>,
}

impl Row {
    fn add(&mut self, left: f64, right: f64, look: Look) {
        if left.floor() > self.pixel || self.shares.is_empty() {
            self.flush();
            (self.pixel, self.first) = (left.floor(), left);
        }
        *self.shares.entry(look).or_default() += right - left;
    }

    fn flush(&mut self) {
        let most = self.shares.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let Some((look, _)) = most.map(|(look, share)| (*look, *share)) else { return };
        let filled: f64 = self.shares.values().sum();
        self.shares.clear();
        // A pixel that is mostly idle shows what little there is at its place; a busy one is full.
        let (left, right) = if filled < THINNEST / 2.0 {
            (self.first, self.first + filled)
        } else {
            (self.pixel, self.pixel + 1.0)
        };
        match self.boxes.last_mut() {
            Some(last) if last.is_sum && last.look == look && last.right >= left => {
                last.right = last.right.max(right);
            }
            Some(last) if last.right > left => {
                let left = last.right.min(right);
                self.boxes.push(DrawnBox { left, right, look, label: None, is_sum: true });
            }
            _ => self.boxes.push(DrawnBox { left, right, look, label: None, is_sum: true }),
        }
    }
}
