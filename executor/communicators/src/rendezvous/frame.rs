//! Frames of the connections of a rendezvous.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Start of each connection, which detects other programs and other versions.
pub(super) const GREETING: &str = "executor 2";

/// Most bytes of a frame. Control messages are specs and identifiers; a longer frame comes from another program.
const MOST_BYTES: usize = 1 << 22;

/// A message between a rank and the hub: the length of its JSON, and its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Frame {
    /// A rank connects.
    Hello { greeting: String, rank: u32, num_ranks: u32 },
    /// All ranks have connected.
    Ready,
    /// The run does not start.
    Refused { reason: String },
    /// A control message: to the hub with its receiver, from the hub with its sender.
    Message { peer: u32, channel: usize, bytes: Vec<u8> },
    /// A rank stops the run.
    Stop { rank: u32, cause: String },
    /// A rank's connection has ended without [`Self::End`].
    Lost { rank: u32 },
    /// A rank has ended: it sends nothing after this.
    End { rank: u32 },
}

impl Frame {
    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let mut bytes = vec![0; size_of::<u32>()];
        serde_json::to_writer(&mut bytes, self)?;
        let length = (bytes.len() - size_of::<u32>()) as u32;
        bytes[..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
        // In one write, so that the frame is not split into packets.
        stream.write_all(&bytes)
    }

    pub(super) fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut length = [0; size_of::<u32>()];
        stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes)?;
        let other = "another program, or another version of this one, speaks";
        serde_json::from_slice(&bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, other))
    }
}
