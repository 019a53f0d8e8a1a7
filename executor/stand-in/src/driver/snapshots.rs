//! Checks that sources of asynchronous copies are not changed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use crate::recording::Range;

/// Hashes of pinned memory when copies from it were started: the source of an asynchronous copy must not change before
/// the copy has ended, and only a comparison shows a change.
#[derive(Default)]
pub(super) struct Snapshots(BTreeMap<u64, Snapshot>);

struct Snapshot {
    range: Range,
    hash: u64,
}

/// Upper bound of the number of copies that are checked. Copies with the lowest source addresses are dropped first.
const MOST_SNAPSHOTS: usize = 64;

impl Snapshots {
    /// Adds the source of a copy.
    pub(super) fn take(&mut self, range: Range) {
        self.0.insert(range.start, Snapshot { range, hash: hash(range) });
        if self.0.len() > MOST_SNAPSHOTS {
            self.0.pop_first();
        }
    }

    /// Drops ranges that a copy is to write.
    pub(super) fn drop_within(&mut self, range: Range) {
        self.0.retain(|_, snapshot| snapshot.range.overlap(range).is_none());
    }

    /// The ranges that have changed since they were hashed. They are dropped.
    pub(super) fn changed(&mut self, holds: impl Fn(Range) -> bool) -> Vec<Range> {
        self.0.retain(|_, snapshot| holds(snapshot.range));
        let is_changed = |snapshot: &Snapshot| hash(snapshot.range) != snapshot.hash;
        self.0
            .extract_if(.., |_, snapshot| is_changed(snapshot))
            .map(|(_, gone)| gone.range)
            .collect()
    }
}

/// A hash of the bytes of a range, which is allocated.
#[expect(unsafe_code, reason = "memory of the program is looked at")]
fn hash(range: Range) -> u64 {
    let start = std::ptr::with_exposed_provenance::<u8>(range.start as usize);
    // SAFETY: ranges are hashed while they are allocated. Another thread may write at the same time, which changes the
    // hash, as it should.
    let bytes = unsafe { std::slice::from_raw_parts(start, (range.end - range.start) as usize) };
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
