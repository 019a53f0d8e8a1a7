//! Columns of pixels as stacked bars, with heights by shares of time.

use std::collections::BTreeMap;

use super::boxes::{COLUMN, Column, Look};
use crate::canvas::Area;

/// The columns of a row or of a lane. Heights are whole grains, which every format draws alike; the rounding error of
/// one column is carried to the next, so that areas are exact. The first after a gap has at least one grain, so that
/// every event is visible.
pub(super) struct Columns {
    area: Area,
    grain: f64,
    /// Height owed to each look by rounding, in grains.
    owed: BTreeMap<Look, f64>,
    /// Height owed to idle time by rounding, in grains.
    owed_idle: f64,
    bars: Vec<(Area, Look)>,
    /// Bars of the column before, by look and grains, and the index of the first of them.
    last: Vec<(Look, u32)>,
    last_from: usize,
    /// Right end of the column before.
    until: f64,
}

impl Columns {
    pub(super) const fn new(area: Area, grain: f64) -> Self {
        Self {
            area,
            grain,
            owed: BTreeMap::new(),
            owed_idle: 0.0,
            bars: Vec::new(),
            last: Vec::new(),
            last_from: 0,
            until: f64::NEG_INFINITY,
        }
    }

    /// Adds the column to the right of the others.
    pub(super) fn add(&mut self, column: &Column) {
        const TOUCHING: f64 = 1e-6;
        let is_next = (column.left - self.until).abs() < TOUCHING;
        self.until = column.right;
        let heights = self.heights(column, !is_next);
        if heights == self.last && is_next {
            for (area, _) in &mut self.bars[self.last_from..] {
                area.width = column.right - area.left;
            }
            return;
        }
        self.last_from = self.bars.len();
        let (left, width) = (column.left, column.right - column.left);
        let mut bottom = self.area.bottom();
        for (look, grains) in &heights {
            let height = (f64::from(*grains) * self.grain).min(bottom - self.area.top);
            bottom -= height;
            self.bars.push((Area { left, top: bottom, width, height }, *look));
        }
        self.last = heights;
    }

    /// Bars to fill, with their looks.
    pub(super) fn finish(self) -> Vec<(Area, Look)> {
        self.bars
    }

    /// Grains of each look, without looks of zero grains.
    fn heights(&mut self, column: &Column, is_seen: bool) -> Vec<(Look, u32)> {
        /// Limit on the debt to idle time, from bars that were drawn although they round to zero.
        const MOST_OWED: f64 = 1.0;
        let all = (self.area.height / self.grain).ceil();
        let is_whole = column.right - column.left > COLUMN * 0.99;
        let most = column.shares.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let Some((most, _)) = most else { return Vec::new() };
        let round = |share: f64, owed: &mut f64, room: f64| {
            // Columns narrower than others carry no error.
            let wanted = share * all + if is_whole { *owed } else { 0.0 };
            let given = wanted.round().clamp(0.0, room);
            if is_whole {
                *owed = wanted - given;
            }
            given
        };
        let idle = 1.0 - column.shares.values().sum::<f64>();
        let least = f64::from(u8::from(is_seen));
        let mut room = all - round(idle, &mut self.owed_idle, all - least);
        self.owed_idle = self.owed_idle.min(MOST_OWED);
        let mut heights = BTreeMap::new();
        for (look, share) in column.shares.iter().filter(|(look, _)| *look != most) {
            let given = round(*share, self.owed.entry(*look).or_default(), room);
            room -= given;
            heights.insert(*look, given);
        }
        // The largest look takes the rest, so its error is the sum of the errors of the others.
        heights.insert(*most, room);
        let seen = heights.into_iter().filter(|(_, grains)| *grains > 0.0);
        seen.map(|(look, grains)| (look, grains as u32)).collect()
    }
}
