//! What goes over the connections of a rendezvous.

use std::io::{self, Read, Write};

/// Said first, so that strangers and other versions are noticed.
const GREETING: &[u8] = b"executor 1";

/// Letters are headers and identifiers; a frame that claims to be longer comes from a stranger.
const MOST_BYTES: usize = 1 << 20;

/// Bytes of a frame before its payload: length of the payload, kind, two numbers.
const FIXED_BYTES: usize = 13;

/// What a rank and the hub tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Who connects.
    Hello { rank: u32, num_ranks: u32 },
    /// All ranks are there.
    Ready,
    /// They will not be.
    Refused { reason: String },
    /// A letter: to the hub with its receiver, from the hub with its sender.
    Letter { peer: u32, lane: u32, bytes: Vec<u8> },
    /// A rank stops the run.
    Stop { rank: u32, cause: String },
    /// A rank's connection has ended without a word.
    Lost { rank: u32 },
    /// A rank has ended: nothing comes after this.
    End { rank: u32 },
}

impl Frame {
    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let (kind, first, second, payload): (u8, u32, u32, &[u8]) = match self {
            Self::Hello { rank, num_ranks } => (0, *rank, *num_ranks, GREETING),
            Self::Ready => (1, 0, 0, &[]),
            Self::Refused { reason } => (2, 0, 0, reason.as_bytes()),
            Self::Letter { peer, lane, bytes } => (3, *peer, *lane, bytes),
            Self::Stop { rank, cause } => (4, *rank, 0, cause.as_bytes()),
            Self::End { rank } => (5, *rank, 0, &[]),
            Self::Lost { rank } => (6, *rank, 0, &[]),
        };
        let payload = &payload[..payload.len().min(MOST_BYTES)];
        let mut bytes = Vec::with_capacity(FIXED_BYTES + payload.len());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.push(kind);
        bytes.extend(first.to_le_bytes());
        bytes.extend(second.to_le_bytes());
        bytes.extend(payload);
        // In one piece, so that it is not cut into packets.
        stream.write_all(&bytes)
    }

    pub(super) fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut fixed = [0; FIXED_BYTES];
        stream.read_exact(&mut fixed)?;
        let word = |at: usize| {
            let bytes = fixed[at..at + 4].try_into().expect("a word has four bytes");
            u32::from_le_bytes(bytes)
        };
        let length = word(0) as usize;
        if length > MOST_BYTES {
            return Err(invalid("a frame is too long"));
        }
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        let (first, second) = (word(5), word(9));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match fixed[4] {
            0 if payload == GREETING => Self::Hello { rank: first, num_ranks: second },
            1 => Self::Ready,
            2 => Self::Refused { reason: text(&payload) },
            3 => Self::Letter { peer: first, lane: second, bytes: payload },
            4 => Self::Stop { rank: first, cause: text(&payload) },
            5 => Self::End { rank: first },
            6 => Self::Lost { rank: first },
            _ => return Err(invalid("another program, or another version of this one, speaks")),
        })
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
