//! Properties of all recordings.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::{HostOrder, MemoryFinding, detect};
use super::script::recording;
use crate::recording::{Access, Effect, Recording, StreamId};

const STREAMS: usize = 3;
const BUFFERS: [&str; 4] = ["A", "B", "B/1", "B/2"];

/// Lines of a recording in which all memory is allocated at the start.
fn program(streams: usize) -> impl Strategy<Value = Vec<String>> {
    let stream = move || 0..streams;
    let thread = || 0..2_usize;
    let usage = || prop::sample::select(vec!["reads", "writes"]);
    let buffer = || prop::sample::select(BUFFERS.to_vec());
    let line = prop_oneof![
        4 => (stream(), usage(), buffer(), thread())
            .prop_map(|(s, usage, buffer, t)| format!("s{s} name {usage} {buffer} by t{t}")),
        1 => (thread(), usage(), buffer())
            .prop_map(|(t, usage, buffer)| format!("t{t} name {usage} {buffer}")),
        2 => (stream(), 0..3_usize, thread())
            .prop_map(|(s, e, t)| format!("s{s} record e{e} by t{t}")),
        2 => (stream(), 0..3_usize, thread())
            .prop_map(|(s, e, t)| format!("s{s} wait e{e} by t{t}")),
        1 => (thread(), 0..3_usize).prop_map(|(t, e)| format!("t{t} sees e{e}")),
        1 => (thread(), stream()).prop_map(|(t, s)| format!("t{t} sees s{s}")),
    ];
    prop::collection::vec(line, 0..24).prop_map(|lines| {
        // A unique name for each line, so that findings show the lines that they concern.
        let named = lines.iter().enumerate();
        named.map(|(index, line)| line.replace(" name ", &format!(" u{index} "))).collect()
    })
}

fn parse(lines: &[String]) -> Recording {
    recording(&format!("t0 alloc A\nt0 alloc B\n{}", lines.join("\n")))
}

fn keys(lines: &[String], order: HostOrder) -> BTreeSet<String> {
    let key = |finding: &MemoryFinding| format!("{:?}", finding.key());
    detect(&parse(lines), order).iter().map(key).collect()
}

const ORDERS: [HostOrder; 2] = [HostOrder::AsRecorded, HostOrder::WithinThreads];

/// Returns whether any two uses of the same bytes, one of them a write, are unordered. Uses are ordered by the paths of
/// a graph with an edge for each rule; threads are in the order of the recording.
fn has_race(recording: &Recording) -> bool {
    // Call `i` has a node for the call itself, `2 i`, and one for the stream's work, `2 i + 1`.
    let calls = &recording.calls;
    let mut reached = vec![BTreeSet::<usize>::new(); 2 * calls.len()];
    let mut last_of_stream = [None; STREAMS];
    let mut recorded = std::collections::BTreeMap::new();
    let mut uses: Vec<(usize, Access)> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let (host, done) = (2 * index, 2 * index + 1);
        let stream = match &call.effect {
            Effect::Work { stream, .. }
            | Effect::Record { stream, .. }
            | Effect::Wait { stream, .. } => Some(*stream),
            _ => None,
        };
        let before = index.checked_sub(1).map(|before| 2 * before);
        let seen = match &call.effect {
            Effect::SeeEvent(event) => recorded.get(event).copied(),
            Effect::SeeStream(StreamId(stream)) => last_of_stream[*stream as usize],
            _ => None,
        };
        after(&mut reached, host, before.into_iter().chain(seen));
        if let Some(StreamId(stream)) = stream {
            let waited = match &call.effect {
                Effect::Wait { event, .. } => recorded.get(event).copied(),
                _ => None,
            };
            let last = last_of_stream[stream as usize].replace(done);
            after(&mut reached, done, [host].into_iter().chain(last).chain(waited));
        }
        if let Effect::Record { event, .. } = &call.effect {
            recorded.insert(*event, done);
        }
        let (node, parts) = match &call.effect {
            Effect::Work { parts, .. } => (done, parts.clone()),
            Effect::Host(part) => (host, vec![part.clone()]),
            _ => continue,
        };
        for access in parts.into_iter().flat_map(|part| part.accesses) {
            let races = |(other, earlier): &(usize, Access)| {
                (access.usage.writes() || earlier.usage.writes())
                    && access.range.overlap(earlier.range).is_some()
                    && !reached[node].contains(other)
            };
            if uses.iter().any(races) {
                return true;
            }
            uses.push((node, access));
        }
    }
    false
}

/// Orders a node after others, and after all nodes that the others come after.
fn after(reached: &mut [BTreeSet<usize>], node: usize, others: impl Iterator<Item = usize>) {
    for other in others {
        let mut all = reached[other].clone();
        all.insert(other);
        reached[node].extend(all);
    }
}

proptest! {
    #[test]
    fn there_is_a_finding_if_and_only_if_two_uses_are_not_ordered(lines in program(STREAMS)) {
        let recording = parse(&lines);
        let found = detect(&recording, HostOrder::AsRecorded);
        prop_assert_eq!(!found.is_empty(), has_race(&recording), "{:?}", found);
    }

    #[test]
    fn one_stream_never_races_with_itself(lines in program(1)) {
        let lines: Vec<String> = lines.into_iter().filter(|line| line.starts_with('s')).collect();
        for order in ORDERS {
            prop_assert_eq!(keys(&lines, order), BTreeSet::new());
        }
    }

    #[test]
    fn an_edge_of_order_never_adds_a_finding(
        lines in program(STREAMS), at in 0..25_usize, from in 0..STREAMS, to in 0..STREAMS,
        is_seen in any::<bool>(),
    ) {
        let at = at.min(lines.len());
        let edge = if is_seen {
            vec![format!("t0 sees s{from}")]
        } else {
            vec![format!("s{from} record new"), format!("s{to} wait new")]
        };
        let ordered = [&lines[..at], &edge, &lines[at..]].concat();
        for order in ORDERS {
            let (more, less) = (keys(&lines, order), keys(&ordered, order));
            prop_assert!(less.is_subset(&more), "{:?}", less.difference(&more));
        }
    }

    #[test]
    fn who_waits_for_the_device_after_each_call_never_races(lines in program(STREAMS)) {
        let waits = |line: String| [line, "t0 sees device".to_owned()];
        let lines: Vec<String> = lines.into_iter().flat_map(waits).collect();
        prop_assert_eq!(keys(&lines, HostOrder::AsRecorded), BTreeSet::new());
    }

    #[test]
    fn less_order_among_threads_only_adds(lines in program(STREAMS)) {
        let [less, more] = ORDERS.map(|order| keys(&lines, order));
        prop_assert!(less.is_subset(&more));
    }
}
