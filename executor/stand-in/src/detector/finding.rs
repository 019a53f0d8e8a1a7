//! Findings of the detector.

use std::collections::BTreeMap;

use serde::Serialize;

use super::memory::Touch;
use crate::recording::{Effect, NamedAccesses, Range, Recording, StreamId, Usage};

/// A mistake in the use of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryFinding {
    /// Kind of mistake.
    pub mistake: Mistake,
    /// The earlier call, if there is one.
    pub first: Option<ReportedUse>,
    /// The later call.
    pub second: ReportedUse,
    /// The bytes that both use.
    pub shared: Range,
    /// Number of equal findings, of which this is the first.
    pub count: u64,
}

/// Kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mistake {
    /// A read of memory whose write may not have ended.
    ReadOfUnfinishedWrite,
    /// A write to memory that may still be read.
    WriteOverUnfinishedRead,
    /// A write to memory that may still be written.
    WriteOverUnfinishedWrite,
    /// A use of memory whose allocation may not have happened yet.
    UseBeforeAllocation,
    /// A free of memory that may still be used.
    FreeWhileInUse,
    /// A use of memory after its free.
    UseAfterFree,
    /// A use of memory that was never allocated.
    UseOutsideAllocations,
    /// Calls of one NCCL group use the same memory, although they run concurrently.
    UseWithinGroup,
}

/// One of the two uses of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedUse {
    /// The kernel, or the function that was called.
    pub name: String,
    /// The stream of the work; none for the host.
    pub stream: Option<StreamId>,
    /// The thread that called.
    pub thread: u32,
    /// The thread's name.
    pub thread_name: String,
    /// Read, write or both.
    pub usage: Usage,
    /// Index of the call among those of the process.
    pub sequence: usize,
    /// The whole range of this use.
    pub range: Range,
}

/// Kind of mistake, with names and streams of both uses.
type Key = (Mistake, Option<(String, Option<StreamId>)>, (String, Option<StreamId>));

impl MemoryFinding {
    /// The key of equal findings, which are reported once.
    pub fn key(&self) -> Key {
        let of = |it: &ReportedUse| (it.name.clone(), it.stream);
        (self.mistake, self.first.as_ref().map(of), of(&self.second))
    }
}

/// A use and its range.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub(super) touch: Touch,
    pub(super) range: Range,
}

/// Findings, with equal ones counted.
pub(super) struct Collected<'a> {
    recording: &'a Recording,
    /// Index of each finding by its key.
    places: BTreeMap<Key, usize>,
    findings: Vec<MemoryFinding>,
}

impl<'a> Collected<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        Self { recording, places: BTreeMap::new(), findings: Vec::new() }
    }

    pub(super) fn findings(self) -> Vec<MemoryFinding> {
        self.findings
    }

    /// Adds a race: two uses that are not ordered.
    pub(super) fn race(&mut self, earlier: Touch, later: Use) {
        let calls = &self.recording.calls;
        let mistake = match (&calls[earlier.index].effect, &calls[later.touch.index].effect) {
            (Effect::Allocate { .. }, _) => Mistake::UseBeforeAllocation,
            (_, Effect::Free { .. }) => Mistake::FreeWhileInUse,
            _ if !later.touch.usage.writes() => Mistake::ReadOfUnfinishedWrite,
            _ if earlier.usage.writes() => Mistake::WriteOverUnfinishedWrite,
            _ => Mistake::WriteOverUnfinishedRead,
        };
        let first = self.reported_use(earlier, later.range);
        let second = self.reported_use(later.touch, later.range);
        self.add(mistake, Some(first), second, later.range);
    }

    /// Adds a use after a free.
    pub(super) fn freed(&mut self, free: usize, later: Use) {
        let touch = Touch { index: free, part: 0, usage: Usage::Write, ..later.touch };
        let first = self.reported_use(touch, later.range);
        let second = self.reported_use(later.touch, later.range);
        self.add(Mistake::UseAfterFree, Some(first), second, later.range);
    }

    /// Adds a use of memory that was never allocated.
    pub(super) fn outside(&mut self, used: Use) {
        let second = self.reported_use(used.touch, used.range);
        self.add(Mistake::UseOutsideAllocations, None, second, used.range);
    }

    /// Adds conflicting uses of the same memory within a group.
    pub(super) fn within(&mut self, index: usize, parts: &[NamedAccesses]) {
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

    fn add(
        &mut self,
        mistake: Mistake,
        first: Option<ReportedUse>,
        second: ReportedUse,
        shared: Range,
    ) {
        let finding = MemoryFinding { mistake, first, second, shared, count: 1 };
        if let Some(place) = self.places.get(&finding.key()) {
            self.findings[*place].count += 1;
        } else {
            self.places.insert(finding.key(), self.findings.len());
            self.findings.push(finding);
        }
    }

    /// A use for a report, with the whole range of the access that overlaps `within`.
    fn reported_use(&self, touch: Touch, within: Range) -> ReportedUse {
        let part = match &self.recording.calls[touch.index].effect {
            Effect::Work { parts, .. } => Some(&parts[touch.part]),
            Effect::Host(part) | Effect::Unseen(part) => Some(part),
            _ => None,
        };
        if let Some(part) = part {
            let uses = |range: &Range| range.overlap(within).is_some();
            let accesses = part.accesses.iter().filter(|access| access.usage == touch.usage);
            let range = accesses.map(|access| access.range).find(uses).unwrap_or(within);
            return self.named(touch.index, part, touch.usage, range);
        }
        let name = match &self.recording.calls[touch.index].effect {
            Effect::Allocate { .. } => "allocation",
            _ => "free",
        };
        self.named(touch.index, &NamedAccesses::new(name, Vec::new()), touch.usage, within)
    }

    fn named(&self, index: usize, part: &NamedAccesses, usage: Usage, range: Range) -> ReportedUse {
        let call = &self.recording.calls[index];
        let stream = match call.effect {
            Effect::Allocate { stream, .. } | Effect::Free { stream, .. } => stream,
            Effect::Work { stream, .. } => Some(stream),
            _ => None,
        };
        let thread_name = self.recording.threads.get(call.thread as usize).cloned();
        ReportedUse {
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
