//! What is told at the end of a process.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::detector::{Finding, HostOrder, detect};
use crate::members::{Member, Mismatch, mismatches};
use crate::recording::Recording;

/// All that is told.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The devices that were seen.
    pub devices: Vec<DeviceFacts>,
    /// How many streams were made, default streams included.
    pub num_streams: usize,
    /// How many calls were written down.
    pub num_calls: usize,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Uses of memory that nothing orders, if what one thread has seen is known to all others.
    pub races: Vec<Finding>,
    /// Those that only what threads may have told each other orders, which is not seen.
    pub suspects: Vec<Finding>,
    /// Memberships of this process in communicators.
    pub members: Vec<Member>,
    /// Where members of one communicator that are all in this process do not fit.
    pub mismatches: Vec<Mismatch>,
}

/// A device that was made up.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceFacts {
    /// Its number on the machine.
    pub index: u32,
    /// Ten times its compute capability.
    pub architecture: u32,
    /// How much memory it has.
    pub memory_bytes: u64,
}

/// What was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Calls, by function.
    pub calls: BTreeMap<String, u64>,
    /// Launches, by kernel.
    pub launches: BTreeMap<String, u64>,
    /// Launches of kernels of which a buffer's length is not known, so that it was taken to end with
    /// its allocation.
    pub unknown_lengths: BTreeMap<String, u64>,
    /// Launches that were refused, and why.
    pub refused: BTreeMap<String, u64>,
    /// Bytes that copies moved, by direction.
    pub bytes: BTreeMap<String, u64>,
    /// How often threads waited for streams, by function. Queries are not waits.
    pub host_waits: BTreeMap<String, u64>,
    /// What drivers do not agree on.
    pub doubts: BTreeMap<String, u64>,
    /// What a program must not do.
    pub misuses: BTreeMap<String, u64>,
}

impl Report {
    /// The report on what was recorded and counted.
    pub fn new(
        devices: Vec<DeviceFacts>,
        counts: Counts,
        recording: &Recording,
        members: Vec<Member>,
    ) -> Self {
        let races = detect(recording, HostOrder::AsRecorded);
        let known: Vec<_> = races.iter().map(Finding::key).collect();
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
