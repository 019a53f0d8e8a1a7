//! The report at the end of a process.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::detector::{HostOrder, MemoryFinding, detect};
use crate::members::{Member, Mismatch, mismatches};
use crate::recording::Recording;

/// The report of a process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    /// Visible devices.
    pub devices: Vec<DeviceFacts>,
    /// Number of created streams, including default streams.
    pub num_streams: usize,
    /// Number of recorded calls.
    pub num_calls: usize,
    /// Counters.
    #[serde(flatten)]
    pub counts: Counts,
    /// Unordered uses of memory, where all threads are assumed to know what one thread has waited for.
    pub races: Vec<MemoryFinding>,
    /// Uses of memory that are ordered only by synchronisation between threads, which the driver does not see.
    pub suspects: Vec<MemoryFinding>,
    /// Memberships of this process in communicators.
    pub members: Vec<Member>,
    /// Mismatches of communicators whose members are all in this process.
    pub mismatches: Vec<Mismatch>,
}

/// A fake device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceFacts {
    /// Number of the GPU on the machine.
    pub index: u32,
    /// Ten times its compute capability.
    pub architecture: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// Counters of a process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Calls, by function.
    pub calls: BTreeMap<String, u64>,
    /// Launches, by kernel.
    pub launches: BTreeMap<String, u64>,
    /// Launches of kernels with a buffer of unknown length. The buffer was assumed to end with its allocation.
    pub unknown_lengths: BTreeMap<String, u64>,
    /// Refused launches, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Bytes that copies moved, by direction.
    pub bytes: BTreeMap<String, u64>,
    /// Number of waits of threads for streams, by function. Queries are not waits.
    pub host_waits: BTreeMap<String, u64>,
    /// Calls whose result differs between drivers.
    pub doubts: BTreeMap<String, u64>,
    /// Errors of the program.
    pub misuses: BTreeMap<String, u64>,
}

impl ProcessReport {
    /// The report of recorded and counted calls.
    pub fn new(
        devices: Vec<DeviceFacts>,
        counts: Counts,
        recording: &Recording,
        members: Vec<Member>,
    ) -> Self {
        let races = detect(recording, HostOrder::AsRecorded);
        let known: Vec<_> = races.iter().map(MemoryFinding::key).collect();
        let mut suspects = detect(recording, HostOrder::WithinThreads);
        suspects.retain(|finding| !known.contains(&finding.key()));
        Self {
            devices,
            num_streams: recording.streams.len(),
            num_calls: recording.calls.len(),
            counts,
            races,
            suspects,
            mismatches: mismatches(&members),
            members,
        }
    }
}
