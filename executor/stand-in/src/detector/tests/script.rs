//! Recordings as text, for tests.

use std::collections::BTreeMap;

use super::super::{HostOrder, MemoryFinding, detect};
use crate::recording::{
    Access, Call, Effect, EventId, NamedAccesses, Range, Recording, StreamFacts, StreamId,
    StreamKind, Usage,
};

/// Bytes of a buffer.
const BUFFER: u64 = 256;

/// A recording of calls, one on each line: stream or thread, name, and memory.
///
/// ```text
/// s0 alloc A                    a stream allocates, and frees
/// t0 alloc P                    so does a thread
/// s0 kernel reads A writes B    a stream is given a kernel
/// s0 send reads A + recv writes B    or calls of a group
/// t0 fill writes P              a thread uses memory itself
/// s0 record e                   an event
/// s1 wait e
/// t0 sees e                     a thread sees that an event came, a stream, or all of a device
/// s0 kernel reads A by t1       all streams are given things by t0, if it is not said
/// ```
///
/// Buffers are named by letters. `B/2` is the second half of one. Streams from `s8` on are blocking, and `s9` is the
/// default stream.
pub(super) fn recording(text: &str) -> Recording {
    let mut reader = Reader { events: BTreeMap::new() };
    let kind = |index| match index {
        9 => StreamKind::Default,
        8 => StreamKind::Blocking,
        _ => StreamKind::NonBlocking,
    };
    let streams = (0..10).map(|index| StreamFacts { device: 0, kind: kind(index) }).collect();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let calls = lines.map(|line| reader.call(line)).collect();
    Recording { streams, threads: Vec::new(), calls }
}

/// Compares the findings of a recording with lines of `Mistake: first, second`.
#[track_caller]
pub(super) fn check(text: &str, expected: &str) {
    check_with(text, HostOrder::AsRecorded, expected);
}

#[track_caller]
pub(super) fn check_with(text: &str, order: HostOrder, expected: &str) {
    let found: Vec<String> = detect(&recording(text), order).iter().map(line).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(found, expected, "{text}");
}

fn line(finding: &MemoryFinding) -> String {
    let first = finding.first.as_ref().map_or("nothing", |it| it.name.as_str());
    format!("{:?}: {first}, {}", finding.mistake, finding.second.name)
}

struct Reader<'a> {
    events: BTreeMap<&'a str, EventId>,
}

impl<'a> Reader<'a> {
    fn call(&mut self, line: &'a str) -> Call {
        let (line, thread) = match line.split_once(" by t") {
            Some((line, thread)) => (line, thread.parse().expect("a number")),
            None => (line, 0),
        };
        let (who, what) = line.split_once(' ').expect("who, what");
        let (kind, number) = who.split_at(1);
        let number = number.parse().expect("a number");
        let (stream, thread) = match kind {
            "s" => (Some(StreamId(number)), thread),
            _ => (None, number),
        };
        Call { thread, effect: self.effect(stream, what) }
    }

    fn effect(&mut self, stream: Option<StreamId>, what: &'a str) -> Effect {
        let (verb, rest) = what.split_once(' ').expect("what, with what");
        match (verb, stream) {
            ("alloc", _) => Effect::Allocate { range: range(rest), stream },
            ("free", _) => Effect::Free { start: range(rest).start, stream },
            ("record", Some(stream)) => Effect::Record { event: self.event(rest), stream },
            ("wait", Some(stream)) => Effect::Wait { stream, event: self.event(rest) },
            ("sees", None) if rest == "device" => Effect::SeeDevice(0),
            ("sees", None) => match rest.strip_prefix('s').map(str::parse) {
                Some(Ok(stream)) => Effect::SeeStream(StreamId(stream)),
                _ => Effect::SeeEvent(self.event(rest)),
            },
            (_, Some(stream)) => {
                Effect::Work { stream, parts: what.split(" + ").map(part).collect() }
            }
            (_, None) => Effect::Host(part(what)),
        }
    }

    fn event(&mut self, name: &'a str) -> EventId {
        let next = EventId(self.events.len() as u64);
        *self.events.entry(name).or_insert(next)
    }
}

fn part(text: &str) -> NamedAccesses {
    let mut words = text.split_whitespace();
    let name = words.next().expect("a name");
    let mut accesses = Vec::new();
    while let (Some(usage), Some(buffer)) = (words.next(), words.next()) {
        let usage = match usage {
            "reads" => Usage::Read,
            "writes" => Usage::Write,
            _ => Usage::ReadWrite,
        };
        accesses.push(Access { range: range(buffer), usage });
    }
    NamedAccesses::new(name, accesses)
}

fn range(buffer: &str) -> Range {
    let letter = buffer.bytes().next().expect("a letter");
    let start = u64::from(letter) << 12;
    match buffer.split_once('/') {
        Some((_, "1")) => Range::new(start, BUFFER / 2),
        Some(_) => Range::new(start + BUFFER / 2, BUFFER / 2),
        None => Range::new(start, BUFFER),
    }
}
