//! The last uses of each byte.

use std::collections::BTreeMap;

use crate::clock::Stamp;
use crate::recording::{Range, Usage};

/// A use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    /// Index of the call in the recording.
    pub(super) index: usize,
    /// Index of the call's part.
    pub(super) part: usize,
    pub(super) usage: Usage,
    pub(super) stamp: Stamp,
}

/// The memory of a recording.
#[derive(Default)]
pub(super) struct Memory {
    /// Live allocations: end by start.
    there: BTreeMap<u64, u64>,
    /// Freed allocations: end and freeing call by start.
    gone: BTreeMap<u64, (u64, usize)>,
    /// Disjoint cells by start.
    cells: BTreeMap<u64, Cell>,
}

/// Bytes with the same last uses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    end: u64,
    write: Option<Touch>,
    /// The last read of each agent since the write.
    reads: Vec<Touch>,
}

/// Status of a range.
pub(super) enum Lost {
    Nothing,
    /// Part of it was freed by a call.
    Freed(usize),
    /// Part of it was never allocated.
    NeverThere,
}

impl Memory {
    /// Adds an allocation. With a stamp, it exists only for streams and threads that know the stamp.
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

    /// Frees the allocation that starts at an address, and returns its range.
    pub(super) fn free(&mut self, start: u64, index: usize) -> Option<Range> {
        let end = self.there.remove(&start)?;
        self.gone.insert(start, (end, index));
        Some(Range { start, end })
    }

    /// Returns whether a range may be used, and if not, why.
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

    /// Forgets all uses of a range.
    pub(super) fn forget(&mut self, range: Range) {
        self.cut(range);
        let starts: Vec<u64> =
            self.cells.range(range.start..range.end).map(|(at, _)| *at).collect();
        for start in starts {
            self.cells.remove(&start);
        }
    }

    /// Passes to `show` all earlier uses that must come before this use, each with the bytes that both use. Then
    /// records this use.
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

    /// Splits cells at the ends of a range.
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
