//! Who used each byte last.

use std::collections::BTreeMap;

use crate::clock::Stamp;
use crate::recording::{Range, Usage};

/// A use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    /// Which call of the recording.
    pub(super) index: usize,
    /// Which of its parts.
    pub(super) part: usize,
    pub(super) usage: Usage,
    pub(super) stamp: Stamp,
}

/// The memory of a recording.
#[derive(Default)]
pub(super) struct Memory {
    /// What is there, by where it begins: where it ends.
    there: BTreeMap<u64, u64>,
    /// What was freed, by where it began: where it ended, and the call.
    gone: BTreeMap<u64, (u64, usize)>,
    /// Disjoint, by where they begin.
    cells: BTreeMap<u64, Cell>,
}

/// Bytes that were used alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    end: u64,
    write: Option<Touch>,
    /// Since then, the last of each agent.
    reads: Vec<Touch>,
}

/// What is not right with a place.
pub(super) enum Lost {
    Nothing,
    /// Some of it was freed by a call.
    Freed(usize),
    /// Some of it was never allocated.
    NeverThere,
}

impl Memory {
    /// Memory is there from now on; for what knows the stamp, if it has one.
    pub(super) fn allocate(&mut self, range: Range, index: usize, stamp: Option<Stamp>) {
        let old: Vec<u64> = self.gone.range(..range.end).map(|(start, _)| *start).collect();
        for start in old {
            if self.gone.get(&start).is_some_and(|(end, _)| *end > range.start) {
                self.gone.remove(&start);
            }
        }
        self.there.insert(range.start, range.end);
        self.forget(range);
        let write = stamp.map(|stamp| Touch { index, part: 0, usage: Usage::Write, stamp });
        self.cells.insert(range.start, Cell { end: range.end, write, reads: Vec::new() });
    }

    /// Ends what begins at an address, and says where it was.
    pub(super) fn free(&mut self, start: u64, index: usize) -> Option<Range> {
        let end = self.there.remove(&start)?;
        self.gone.insert(start, (end, index));
        Some(Range { start, end })
    }

    /// Whether a place may be used.
    pub(super) fn lost(&self, range: Range) -> Lost {
        let there = self.there.range(..=range.start).next_back();
        if there.is_some_and(|(_, end)| range.end <= *end) {
            return Lost::Nothing;
        }
        let gone = self.gone.range(..range.end).next_back();
        match gone.filter(|(_, (end, _))| *end > range.start) {
            Some((_, (_, index))) => Lost::Freed(*index),
            None => Lost::NeverThere,
        }
    }

    /// No one has used a place.
    pub(super) fn forget(&mut self, range: Range) {
        self.cut(range);
        let starts: Vec<u64> =
            self.cells.range(range.start..range.end).map(|(at, _)| *at).collect();
        for start in starts {
            self.cells.remove(&start);
        }
    }

    /// Shows all earlier uses that a use must come after, with the bytes that both use; then the
    /// use is one of the earlier ones itself.
    pub(super) fn access(
        &mut self,
        range: Range,
        touch: Touch,
        mut show: impl FnMut(Touch, Range),
    ) {
        self.cut(range);
        for (start, cell) in self.cells.range_mut(range.start..range.end) {
            let shared = Range { start: *start, end: cell.end };
            cell.write.iter().for_each(|earlier| show(*earlier, shared));
            if touch.usage.writes() {
                cell.reads.iter().for_each(|earlier| show(*earlier, shared));
            } else {
                cell.reads.retain(|earlier| earlier.stamp.agent != touch.stamp.agent);
                cell.reads.push(touch);
            }
        }
        if touch.usage.writes() {
            self.forget(range);
            self.cells.insert(
                range.start,
                Cell { end: range.end, write: Some(touch), reads: Vec::new() },
            );
        }
    }

    /// Sees to it that cells end where a place begins and ends.
    fn cut(&mut self, range: Range) {
        for at in [range.start, range.end] {
            let before = self.cells.range_mut(..at).next_back().filter(|(_, cell)| cell.end > at);
            if let Some((_, cell)) = before {
                let after = cell.clone();
                cell.end = at;
                self.cells.insert(at, after);
            }
        }
    }
}
