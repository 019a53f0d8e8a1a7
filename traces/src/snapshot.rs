//! Memory over time as a snapshot of PyTorch's allocator, for PyTorch's memory viewer.
//!
//! A track knows the sum of its memory over time, and the names of what it holds from the start. An increase is named
//! after the action at that time. A decrease frees the oldest increase first, and then the parts that were held from
//! the start, the last one first.
//!
//! Source: PyTorch, `torch/cuda/_memory_viz.py`, which reads such snapshots.

use std::collections::VecDeque;

use ir::units::{Bytes, Nanos};
use serde_json::{Value, json};

use crate::timeline::{Stream, Timeline, Track};

/// A snapshot of a timeline's memory, pickled. `held` has, for each track, the memory that it holds from the start, by
/// name. Parts that exceed the memory at the start are left out.
///
/// # Panics
///
/// Never: texts and numbers can be pickled.
pub fn snapshot(timeline: &Timeline, held: &[Vec<(&str, Bytes)>]) -> Vec<u8> {
    let none = Vec::new();
    let tracks = timeline.tracks.iter().enumerate();
    let blocks: Vec<Vec<Block>> =
        tracks.map(|(index, track)| blocks(track, held.get(index).unwrap_or(&none))).collect();
    let segments = blocks.iter().enumerate().flat_map(|(device, blocks)| {
        let left = blocks.iter().filter(|block| block.freed.is_none());
        left.map(move |block| segment(device, block))
    });
    let snapshot = json!({
        "segments": segments.collect::<Vec<_>>(),
        "device_traces": blocks.iter().map(|blocks| events(blocks)).collect::<Vec<_>>(),
        "allocator_settings": {},
    });
    let options = serde_pickle::SerOptions::new();
    serde_pickle::to_vec(&snapshot, options).expect("texts and numbers can be pickled")
}

/// Memory from one time to another, or to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    name: String,
    address: u64,
    bytes: u64,
    taken: Nanos,
    freed: Option<Nanos>,
}

/// Start of a device's memory, as CUDA's virtual addresses have it.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// Alignment of blocks in bytes.
const ALIGNMENT: u64 = 512;

/// The blocks of a track, by the time at which they are taken.
fn blocks(track: &Track, held: &[(&str, Bytes)]) -> Vec<Block> {
    let mut done: Vec<Block> = Vec::new();
    let Some(first) = track.memory.first() else { return done };
    // Of the blocks held from the start, the last is freed first; of the blocks taken later, the first.
    let (mut held_now, mut grown): (Vec<Block>, VecDeque<Block>) = Default::default();
    let block = |name: String, bytes: u64, taken: Nanos| Block {
        name,
        address: 0,
        bytes,
        taken,
        freed: None,
    };
    let mut left = first.bytes.get();
    for (name, bytes) in held {
        let bytes = bytes.get().min(left);
        left -= bytes;
        if bytes > 0 {
            held_now.push(block((*name).to_owned(), bytes, first.time));
        }
    }
    if left > 0 {
        held_now.push(block("other".to_owned(), left, first.time));
    }
    for pair in track.memory.windows(2) {
        let (time, before, now) = (pair[1].time, pair[0].bytes.get(), pair[1].bytes.get());
        if now > before {
            grown.push_back(block(action_at(track, time), now - before, time));
        }
        let mut shrinks = before.saturating_sub(now);
        while shrinks > 0 {
            let from_grown = !grown.is_empty();
            let next = if from_grown { grown.pop_front() } else { held_now.pop() };
            let Some(mut next) = next else { break };
            let part = next.bytes.min(shrinks);
            done.push(Block { bytes: part, freed: Some(time), ..next.clone() });
            shrinks -= part;
            next.bytes -= part;
            if next.bytes > 0 && from_grown {
                grown.push_front(next);
            } else if next.bytes > 0 {
                held_now.push(next);
            }
        }
    }
    done.extend(held_now);
    done.extend(grown);
    done.sort_by(|a, b| (a.taken, &a.name, a.freed).cmp(&(b.taken, &b.name, b.freed)));
    let mut address = FIRST_ADDRESS;
    for block in &mut done {
        block.address = address;
        address += block.bytes.next_multiple_of(ALIGNMENT);
    }
    done
}

/// Name of an increase: the action that begins at that time, or else the action that runs.
fn action_at(track: &Track, time: Nanos) -> String {
    let is_at = |start: Nanos, end: Nanos| start <= time && time < end;
    let found = track
        .events
        .iter()
        .rfind(|event| event.stream == Stream::Compute && is_at(event.start, event.end));
    found.map_or_else(
        || "activations".to_owned(),
        |event| format!("activations of {}", event.activity),
    )
}

fn events(blocks: &[Block]) -> Vec<Value> {
    // At one time, memory is freed before more is taken.
    let mut all: Vec<(Nanos, u8, &'static str, &Block)> = Vec::new();
    for block in blocks {
        all.push((block.taken, 2, "alloc", block));
        if let Some(freed) = block.freed {
            all.push((freed, 0, "free_requested", block));
            all.push((freed, 1, "free_completed", block));
        }
    }
    all.sort_by_key(|(time, order, _, block)| (*time, *order, block.address));
    let event = |(time, _, action, block): (Nanos, u8, &'static str, &Block)| {
        json!({
            "action": action,
            "addr": block.address,
            "size": block.bytes,
            "stream": 0,
            "time_us": time.get() / 1000,
            "frames": frames(block),
        })
    };
    all.into_iter().map(event).collect()
}

/// A segment of its own for a block that is held at the end.
fn segment(device: usize, block: &Block) -> Value {
    let Block { address, bytes, .. } = block;
    let of_block = json!({
        "address": address,
        "size": bytes,
        "requested_size": bytes,
        "state": "active_allocated",
        "frames": frames(block),
    });
    json!({
        "device": device,
        "address": address,
        "total_size": bytes,
        "allocated_size": bytes,
        "active_size": bytes,
        "requested_size": bytes,
        "stream": 0,
        "segment_type": "large",
        "blocks": [of_block],
        "frames": [],
    })
}

/// Name of a block, in the place where a snapshot of a program has lines of code.
fn frames(block: &Block) -> Value {
    json!([{"name": block.name, "filename": "predicted", "line": 0}])
}

#[cfg(test)]
mod tests {
    use ir::schedule::{Action, ActionKind};

    use super::*;
    use crate::timeline::{Activity, Event, MemoryPoint};

    fn track(points: &[(u64, u64)]) -> Track {
        let point = |(time, bytes): &(u64, u64)| MemoryPoint {
            time: Nanos::new(*time),
            bytes: Bytes::new(*bytes),
        };
        let action = Action { stage: 0, kind: ActionKind::Forward, micro_batch: 3 };
        let event = Event {
            start: Nanos::new(10),
            end: Nanos::new(20),
            stream: Stream::Compute,
            activity: Activity::Action(action),
            bytes: Bytes::ZERO,
        };
        let memory = points.iter().map(point).collect();
        Track { events: vec![event], memory, ..Track::default() }
    }

    /// At every moment blocks add up to the memory of the track.
    #[test]
    fn blocks_add_up_to_the_memory() {
        let points = [(0, 100), (10, 160), (15, 190), (30, 140), (40, 120), (50, 60), (60, 75)];
        let held = [("parameters", Bytes::new(40)), ("workspace", Bytes::new(30))];
        let blocks = blocks(&track(&points), &held);
        for (time, bytes) in points {
            let time = Nanos::new(time);
            let is_held =
                |block: &&Block| block.taken <= time && block.freed.is_none_or(|it| it > time);
            let sum: u64 = blocks.iter().filter(is_held).map(|block| block.bytes).sum();
            assert_eq!(sum, bytes, "{time}: {blocks:#?}");
        }
        let names: Vec<&str> = blocks.iter().map(|block| block.name.as_str()).collect();
        assert!(
            names.contains(&"parameters") && names.contains(&"activations of 0F3"),
            "{names:?}"
        );
        let left: Vec<&str> =
            blocks.iter().filter(|it| it.freed.is_none()).map(|it| it.name.as_str()).collect();
        assert_eq!(left, ["parameters", "workspace", "activations"], "{blocks:#?}");
    }
}
