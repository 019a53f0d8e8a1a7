//! Loads and stores of threads.

use super::fault::Fault;
use super::program::{Decoded, Space};
use super::space::{Global, Memories, name};
use crate::number::word;
use crate::recording::Usage;

/// Position of a warp in its grid.
#[derive(Clone, Copy)]
pub(super) struct WarpPosition {
    pub(super) block: [u32; 3],
    pub(super) first_thread: usize,
}

/// An invalid memory access.
pub(super) struct Failed {
    what: &'static str,
    place: (Space, u64),
    bytes: usize,
    lane: usize,
}

impl Failed {
    /// Fails if an address is not a multiple of `bytes`; else returns the error for an address outside of memory.
    pub(super) fn aligned(
        what: &'static str,
        place: (Space, u64),
        bytes: usize,
        lane: usize,
    ) -> Result<Self, Self> {
        let failed = Self { what, place, bytes, lane };
        // Parameters are placed by the host.
        if !place.1.is_multiple_of(bytes.max(1) as u64) && place.0 != Space::Param {
            return Err(failed);
        }
        Ok(failed)
    }

    pub(super) fn fault(self, instruction: &Decoded, place: WarpPosition) -> Fault {
        let Self { what, place: (space, address), bytes, lane } = self;
        Fault::Access {
            what,
            space: name(space),
            address,
            bytes,
            instruction: instruction.text.clone(),
            block: place.block,
            thread: (place.first_thread + lane) as u32,
        }
    }
}

/// Reads at most eight bytes.
pub(super) fn load<G: Global>(
    memories: &mut Memories<'_, G>,
    place: (Space, u64),
    bytes: usize,
    lane: usize,
    at: WarpPosition,
) -> Result<u64, Failed> {
    let failed = Failed::aligned("reads", place, bytes, lane)?;
    let found = memories.read(place, bytes, at.first_thread + lane).ok_or(failed)?;
    Ok(word(found))
}

/// Writes at most eight bytes.
pub(super) fn store<G: Global>(
    memories: &mut Memories<'_, G>,
    place: (Space, u64),
    bytes: usize,
    value: u64,
    lane: usize,
    at: WarpPosition,
) -> Result<(), Failed> {
    let failed = Failed::aligned("writes", place, bytes, lane)?;
    let thread = at.first_thread + lane;
    let found = memories.bytes(place, bytes, thread, Usage::Write).ok_or(failed)?;
    found.copy_from_slice(&value.to_le_bytes()[..bytes]);
    Ok(())
}
