//! Messages between ranks: files in a common folder.
//!
//! A message is a file whose name contains the call and both ranks. The file is moved to its place when it is complete,
//! and the receiver deletes it.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use super::codes::Code;
use super::space::Space;
use crate::exchange::NcclCall;
use crate::recording::{Access, Range, Usage};

/// A call of a rank that exchanges messages.
pub(super) struct Post {
    call: NcclCall,
    /// Folder of all messages of the communicator.
    folder: PathBuf,
    /// Name of the call, unique between the same ranks.
    name: String,
    from: Option<Range>,
    to: Option<Range>,
    /// The rank's input, once it was sent.
    own: Option<Vec<u8>>,
    received: BTreeMap<u32, Vec<u8>>,
}

impl Post {
    /// The `number`-th call of its kind, with the memory that it reads and writes.
    pub(super) fn new(
        call: NcclCall,
        communicator: &str,
        number: u64,
        accesses: &[Access],
    ) -> Self {
        let range = |usage: Usage| {
            accesses.iter().find(|access| access.usage == usage).map(|access| access.range)
        };
        let kind = if call.is_to_one() { "message" } else { "call" };
        Self {
            call,
            folder: folder(communicator),
            name: format!("{kind}-{number}"),
            from: range(Usage::Read),
            to: range(Usage::Write),
            own: None,
            received: BTreeMap::new(),
        }
    }

    /// The call and its state as text.
    pub(super) fn describe(&self) -> String {
        let NcclCall { function, rank, .. } = self.call;
        let state = if self.own.is_some() { "sent" } else { "not begun" };
        format!("{function:?} of rank {rank} ({}, {state})", self.name)
    }

    /// Sends and receives messages, and returns whether the call has ended.
    pub(super) fn advance(&mut self, space: &Space) -> Result<bool, Code> {
        if self.own.is_none() {
            let own = self.from.map_or_else(Vec::new, |range| space.read(range));
            for (to, part) in self.call.outgoing() {
                self.send(to, &own[part]).map_err(|_| Code::NCCL_SYSTEM_ERROR)?;
            }
            self.own = Some(own);
        }
        let missing: Vec<u32> = self
            .call
            .incoming()
            .into_iter()
            .filter(|rank| !self.received.contains_key(rank))
            .collect();
        for from in missing {
            let path = self.path(from, self.call.rank);
            let Ok(bytes) = std::fs::read(&path) else { return Ok(false) };
            // A message that was read is not needed any more.
            let _ = std::fs::remove_file(path);
            self.received.insert(from, bytes);
        }
        let own = self.own.as_deref().unwrap_or_default();
        if let (Some(to), Some(result)) = (self.to, self.call.result(own, &self.received)) {
            if to.end - to.start != result.len() as u64 {
                return Err(Code::NCCL_INVALID_ARGUMENT);
            }
            space.write(to, &result);
        }
        Ok(true)
    }

    fn send(&self, to: u32, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.path(self.call.rank, to);
        let unfinished = path.with_extension("part");
        let write = || {
            std::fs::create_dir_all(&self.folder)?;
            std::fs::write(&unfinished, bytes)
        };
        // Another rank may have deleted the empty folder when it ended.
        write().or_else(|_| write())?;
        std::fs::rename(unfinished, path)
    }

    fn path(&self, from: u32, to: u32) -> PathBuf {
        self.folder.join(format!("{}-from-{from}-to-{to}", self.name))
    }
}

/// The folder of a communicator's messages: below `STAND_IN_EXCHANGE`, or in the folder of temporary files.
fn folder(communicator: &str) -> PathBuf {
    let base = env::var_os("STAND_IN_EXCHANGE").map_or_else(env::temp_dir, PathBuf::from);
    base.join(format!("stand-in-{communicator}"))
}

/// Deletes the folder of a communicator, if it is empty.
pub(super) fn close(communicator: &str) {
    // Other ranks may still have to read messages: only the last rank finds the folder empty.
    let _ = std::fs::remove_dir(folder(communicator));
}
