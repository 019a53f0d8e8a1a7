//! What copies read, looked at again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use crate::recording::Range;

/// What pinned memory held when copies from it were started: who copies asynchronously must not
/// change the source before the copy ended, and a change is seen only by looking.
#[derive(Default)]
pub(super) struct Snapshots(BTreeMap<u64, Snapshot>);

struct Snapshot {
    range: Range,
    hash: u64,
}

/// How many copies are looked at. The oldest addresses go first.
const MOST_SNAPSHOTS: usize = 64;

impl Snapshots {
    /// Looks at what a copy reads.
    pub(super) fn take(&mut self, range: Range) {
        self.0.insert(range.start, Snapshot { range, hash: hash(range) });
        if self.0.len() > MOST_SNAPSHOTS {
            self.0.pop_first();
        }
    }

    /// Looks no more at what a copy is to write.
    pub(super) fn drop_within(&mut self, range: Range) {
        self.0.retain(|_, snapshot| snapshot.range.overlap(range).is_none());
    }

    /// The ranges that were changed since, which are not looked at again.
    pub(super) fn changed(&mut self, holds: impl Fn(Range) -> bool) -> Vec<Range> {
        self.0.retain(|_, snapshot| holds(snapshot.range));
        let is_changed = |snapshot: &Snapshot| hash(snapshot.range) != snapshot.hash;
        self.0
            .extract_if(.., |_, snapshot| is_changed(snapshot))
            .map(|(_, gone)| gone.range)
            .collect()
    }
}

/// A number that is another for other bytes, almost always. The bytes are there.
#[expect(unsafe_code, reason = "memory of the program is looked at")]
fn hash(range: Range) -> u64 {
    let start = std::ptr::with_exposed_provenance::<u8>(range.start as usize);
    // SAFETY: ranges are hashed while their allocation is there. Another thread may write meanwhile,
    // which makes the number another, as it should be.
    let bytes = unsafe { std::slice::from_raw_parts(start, (range.end - range.start) as usize) };
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
