//! Counters of sent bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use ir::units::Bytes;
use traces::timeline::Stream;

/// Bytes that a rank has sent to others, by stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic([u64; Stream::ALL.len()]);

impl Traffic {
    /// Bytes sent on a stream.
    pub fn bytes(&self, stream: Stream) -> Bytes {
        Bytes::new(self.0[index(stream)])
    }

    /// Bytes sent on all streams.
    pub fn total(&self) -> Bytes {
        Bytes::new(self.0.iter().sum())
    }

    /// Bytes sent since the traffic was `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut sent = *self;
        for (bytes, before) in sent.0.iter_mut().zip(earlier.0) {
            *bytes = bytes.checked_sub(before).expect("traffic only grows");
        }
        sent
    }
}

/// Counters of a rank's sent bytes, shared by its threads.
#[derive(Debug, Default)]
pub(super) struct Counters([AtomicU64; Stream::ALL.len()]);

impl Counters {
    pub(super) fn add(&self, stream: Stream, bytes: u64) {
        self.0[index(stream)].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        Traffic(std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed)))
    }
}

fn index(stream: Stream) -> usize {
    Stream::ALL.iter().position(|other| *other == stream).expect("all streams are in the list")
}
