//! What was found.

use std::collections::BTreeMap;

use serde::Serialize;

use super::memory::Touch;
use crate::recording::{Action, Part, Range, Recording, StreamId, Usage};

/// A mistake in the use of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is wrong.
    pub mistake: Mistake,
    /// What was called before, if there is such a thing.
    pub first: Option<Side>,
    /// What was called then.
    pub second: Side,
    /// The bytes that both use.
    pub shared: Range,
    /// How often the same was found, of which this is the first time.
    pub count: u64,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mistake {
    /// It is read what may not have been written.
    ReadOfUnfinishedWrite,
    /// It is written what may still be read.
    WriteOverUnfinishedRead,
    /// It is written what may still be written.
    WriteOverUnfinishedWrite,
    /// Memory is used before it may be there.
    UseBeforeAllocation,
    /// Memory is freed that may still be used.
    FreeWhileInUse,
    /// Memory is used that was freed.
    UseAfterFree,
    /// Memory is used that is no memory.
    UseOutsideAllocations,
    /// Calls of one group, which go on at once, use the same memory.
    UseWithinGroup,
}

/// One of two uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// The kernel, or the function that was called.
    pub name: String,
    /// The stream that it was given to; none if the host does it itself.
    pub stream: Option<StreamId>,
    /// The thread that called.
    pub thread: u32,
    /// The thread's name.
    pub thread_name: String,
    /// To what end.
    pub usage: Usage,
    /// Which call of the process it is.
    pub sequence: usize,
    /// All that it uses there.
    pub range: Range,
}

/// A mistake, and between which names on which streams.
type Key = (Mistake, Option<(String, Option<StreamId>)>, (String, Option<StreamId>));

impl Finding {
    /// What is the same for findings that are told once.
    pub fn key(&self) -> Key {
        let of = |side: &Side| (side.name.clone(), side.stream);
        (self.mistake, self.first.as_ref().map(of), of(&self.second))
    }
}

/// A use, and where.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub(super) touch: Touch,
    pub(super) range: Range,
}

/// Findings, the same ones counted.
pub(super) struct Collected<'a> {
    recording: &'a Recording,
    /// By their keys, in the order in which they were found.
    places: BTreeMap<Key, usize>,
    findings: Vec<Finding>,
}

impl<'a> Collected<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        Self { recording, places: BTreeMap::new(), findings: Vec::new() }
    }

    pub(super) fn findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Nothing orders two uses.
    pub(super) fn race(&mut self, earlier: Touch, later: Use) {
        let calls = &self.recording.calls;
        let mistake = match (&calls[earlier.index].action, &calls[later.touch.index].action) {
            (Action::Allocate { .. }, _) => Mistake::UseBeforeAllocation,
            (_, Action::Free { .. }) => Mistake::FreeWhileInUse,
            _ if !later.touch.usage.writes() => Mistake::ReadOfUnfinishedWrite,
            _ if earlier.usage.writes() => Mistake::WriteOverUnfinishedWrite,
            _ => Mistake::WriteOverUnfinishedRead,
        };
        let first = self.side(earlier, later.range);
        let second = self.side(later.touch, later.range);
        self.add(mistake, Some(first), second, later.range);
    }

    /// Something is used that a call freed.
    pub(super) fn freed(&mut self, free: usize, later: Use) {
        let touch = Touch { index: free, part: 0, usage: Usage::Write, ..later.touch };
        let first = self.side(touch, later.range);
        let second = self.side(later.touch, later.range);
        self.add(Mistake::UseAfterFree, Some(first), second, later.range);
    }

    /// Something is used that was never there.
    pub(super) fn outside(&mut self, used: Use) {
        let side = self.side(used.touch, used.range);
        self.add(Mistake::UseOutsideAllocations, None, side, used.range);
    }

    /// Looks for uses of the same memory in parts that go on at once.
    pub(super) fn within(&mut self, index: usize, parts: &[Part]) {
        for (number, part) in parts.iter().enumerate() {
            for earlier in &parts[..number] {
                let pairs =
                    earlier.accesses.iter().flat_map(|a| part.accesses.iter().map(move |b| (a, b)));
                for (a, b) in pairs.filter(|(a, b)| a.usage.writes() || b.usage.writes()) {
                    let Some(shared) = a.range.overlap(b.range) else { continue };
                    let first = self.named(index, earlier, a.usage, a.range);
                    let second = self.named(index, part, b.usage, b.range);
                    self.add(Mistake::UseWithinGroup, Some(first), second, shared);
                }
            }
        }
    }

    fn add(&mut self, mistake: Mistake, first: Option<Side>, second: Side, shared: Range) {
        let finding = Finding { mistake, first, second, shared, count: 1 };
        if let Some(place) = self.places.get(&finding.key()) {
            self.findings[*place].count += 1;
        } else {
            self.places.insert(finding.key(), self.findings.len());
            self.findings.push(finding);
        }
    }

    /// A use, as it is told; with all of the range of which `within` is used.
    fn side(&self, touch: Touch, within: Range) -> Side {
        let part = match &self.recording.calls[touch.index].action {
            Action::Work { parts, .. } => Some(&parts[touch.part]),
            Action::Host(part) | Action::Unseen(part) => Some(part),
            _ => None,
        };
        if let Some(part) = part {
            let uses = |range: &Range| range.overlap(within).is_some();
            let accesses = part.accesses.iter().filter(|access| access.usage == touch.usage);
            let range = accesses.map(|access| access.range).find(uses).unwrap_or(within);
            return self.named(touch.index, part, touch.usage, range);
        }
        let name = match &self.recording.calls[touch.index].action {
            Action::Allocate { .. } => "allocation",
            _ => "free",
        };
        self.named(touch.index, &Part::new(name, Vec::new()), touch.usage, within)
    }

    fn named(&self, index: usize, part: &Part, usage: Usage, range: Range) -> Side {
        let call = &self.recording.calls[index];
        let stream = match call.action {
            Action::Allocate { stream, .. } | Action::Free { stream, .. } => stream,
            Action::Work { stream, .. } => Some(stream),
            _ => None,
        };
        let thread_name = self.recording.threads.get(call.thread as usize).cloned();
        Side {
            name: part.name.to_string(),
            stream,
            thread: call.thread,
            thread_name: thread_name.unwrap_or_default(),
            usage,
            sequence: index,
            range,
        }
    }
}
