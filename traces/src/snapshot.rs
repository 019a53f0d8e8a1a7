//! Memory over time as a snapshot of PyTorch's allocator, which its memory viewer opens.
//!
//! A pickle of dictionaries, lists, texts and numbers:
//!
//! ```text
//! device_traces       for each track its events: alloc, free_requested, free_completed, with addr, size, time_us, frames
//! segments            what is held at the end, a segment for each block
//! allocator_settings  none
//! ```
//!
//! What a track holds is known as a sum over time, with names for what it holds from the start. What grows is named after
//! the action at that moment; what shrinks frees the oldest of it, and then of what was there from the start the last.
//!
//! # Source
//!
//! PyTorch, `torch/cuda/_memory_viz.py` for what is read; Python, `Lib/pickletools.py` for the form.

use std::collections::VecDeque;

use ir::units::{Bytes, Nanos};

use crate::timeline::{Stream, Timeline, Track};

/// A timeline's memory. `held` has for each track what it holds from the start, by name, in the order in which that is
/// taken; what is more than the track has at its start is left out.
pub fn snapshot(timeline: &Timeline, held: &[Vec<(&str, Bytes)>]) -> Vec<u8> {
    let none = Vec::new();
    let tracks = timeline.tracks.iter().enumerate();
    let blocks: Vec<Vec<Block>> =
        tracks.map(|(index, track)| blocks(track, held.get(index).unwrap_or(&none))).collect();
    let segments = blocks.iter().enumerate().flat_map(|(device, blocks)| {
        let left = blocks.iter().filter(|block| block.freed.is_none());
        left.map(move |block| segment(device, block))
    });
    let value = Value::Dictionary(vec![
        ("segments", Value::List(segments.collect())),
        ("device_traces", Value::List(blocks.iter().map(|blocks| events(blocks)).collect())),
        ("allocator_settings", Value::Dictionary(Vec::new())),
    ]);
    value.pickled()
}

/// Memory from a moment on, to another or for good.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    name: String,
    address: u64,
    bytes: u64,
    taken: Nanos,
    freed: Option<Nanos>,
}

/// Where the memory of a device begins, as CUDA's virtual addresses do.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// What blocks begin at multiples of.
const ALIGNMENT: u64 = 512;

/// The blocks of a track, by the time at which they are taken.
fn blocks(track: &Track, held: &[(&str, Bytes)]) -> Vec<Block> {
    let mut done: Vec<Block> = Vec::new();
    let Some(first) = track.memory.first() else { return done };
    // From the start, the last taken the first to go; later, the first taken.
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

/// What a track does when its memory grows: the action that begins then, else the one that is under way.
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

fn events(blocks: &[Block]) -> Value {
    // What is freed at a moment goes before what is taken then.
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
        Value::Dictionary(vec![
            ("action", Value::Text(action.to_owned())),
            ("addr", Value::Number(block.address)),
            ("size", Value::Number(block.bytes)),
            ("stream", Value::Number(0)),
            ("time_us", Value::Number(time.get() / 1000)),
            ("frames", frames(block)),
        ])
    };
    Value::List(all.into_iter().map(event).collect())
}

fn segment(device: usize, block: &Block) -> Value {
    let size = || Value::Number(block.bytes);
    let of_block = Value::Dictionary(vec![
        ("address", Value::Number(block.address)),
        ("size", size()),
        ("requested_size", size()),
        ("state", Value::Text("active_allocated".to_owned())),
        ("frames", frames(block)),
    ]);
    Value::Dictionary(vec![
        ("device", Value::Number(device as u64)),
        ("address", Value::Number(block.address)),
        ("total_size", size()),
        ("allocated_size", size()),
        ("active_size", size()),
        ("requested_size", size()),
        ("stream", Value::Number(0)),
        ("segment_type", Value::Text("large".to_owned())),
        ("blocks", Value::List(vec![of_block])),
        ("frames", Value::List(Vec::new())),
    ])
}

/// What a block is for, where a snapshot has the lines of a program.
fn frames(block: &Block) -> Value {
    Value::List(vec![Value::Dictionary(vec![
        ("name", Value::Text(block.name.clone())),
        ("filename", Value::Text("predicted".to_owned())),
        ("line", Value::Number(0)),
    ])])
}

/// What a pickle of ours holds.
enum Value {
    Number(u64),
    Text(String),
    List(Vec<Self>),
    Dictionary(Vec<(&'static str, Self)>),
}

impl Value {
    /// As pickle's protocol 2 has it.
    fn pickled(&self) -> Vec<u8> {
        let mut out = vec![0x80, 2];
        self.write(&mut out);
        out.push(b'.');
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => write_number(*number, out),
            Self::Text(text) => write_text(text, out),
            Self::List(values) => {
                out.extend(b"](");
                for value in values {
                    value.write(out);
                }
                out.push(b'e');
            }
            Self::Dictionary(entries) => {
                out.extend(b"}(");
                for (key, value) in entries {
                    write_text(key, out);
                    value.write(out);
                }
                out.push(b'u');
            }
        }
    }
}

/// In 32 bits with a sign where it fits, else in as few bytes as hold it with its sign, as Python does.
fn write_number(number: u64, out: &mut Vec<u8>) {
    if let Ok(small) = i32::try_from(number) {
        out.push(b'J');
        out.extend(small.to_le_bytes());
        return;
    }
    let bytes = u128::from(number).to_le_bytes();
    let length = (128 - u128::from(number).leading_zeros() as usize) / 8 + 1;
    out.extend([0x8a, length as u8]);
    out.extend(&bytes[..length]);
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
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

    #[test]
    fn numbers_are_as_python_writes_them() {
        let check = |number: u64, expected: &[u8]| {
            let mut out = Vec::new();
            write_number(number, &mut out);
            assert_eq!(out, expected, "{number}");
        };
        check(7, b"J\x07\0\0\0");
        check(0x7fff_ffff, b"J\xff\xff\xff\x7f");
        check(0x8000_0000, b"\x8a\x05\0\0\0\x80\0");
        check(0x7f00_0000_0000, b"\x8a\x06\0\0\0\0\0\x7f");
        check(u64::MAX, b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0");
    }
}
