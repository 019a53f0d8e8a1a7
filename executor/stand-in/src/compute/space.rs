//! State spaces of a thread.
//!
//! The upper bits of a generic address give its space. Addresses of global memory are addresses of the host, in which
//! these bits are zero.

use super::hazard::Uses;
use super::lanes::WIDTH;
use super::program::Space;
use crate::recording::Usage;

/// Global memory of a grid.
pub trait Global {
    /// The bytes of an access; none if it is not allowed.
    fn bytes(&mut self, start: u64, len: usize, usage: Usage) -> Option<&mut [u8]>;
}

const SHARED: u64 = 1 << 56;
const LOCAL: u64 = 2 << 56;
const PARAM: u64 = 3 << 56;
const WINDOW: u64 = 0xff << 56;

/// Content of memory that was never written: NaN in all formats.
pub(super) const FILL: u8 = 0xff;

/// The generic address of a space's first byte.
pub(super) fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
        Space::Generic | Space::Global => 0,
    }
}

/// The space of an address, and the address within it.
pub(super) fn resolve(space: Space, address: u64) -> (Space, u64) {
    if space != Space::Generic {
        return (space, address);
    }
    let inner = address & !WINDOW;
    match address & WINDOW {
        SHARED => (Space::Shared, inner),
        LOCAL => (Space::Local, inner),
        PARAM => (Space::Param, inner),
        _ => (Space::Global, address),
    }
}

/// The name of a space.
pub(super) fn name(space: Space) -> &'static str {
    match space {
        Space::Generic => "generic",
        Space::Global => "global",
        Space::Shared => "shared",
        Space::Local => "local",
        Space::Param => "parameter",
    }
}

/// All memories of the threads of a block.
pub(super) struct Memories<'a, G> {
    pub(super) global: &'a mut G,
    pub(super) shared: Vec<u8>,
    pub(super) uses: Uses,
    /// True where two warps have accessed the same shared memory without a barrier between them.
    pub(super) has_collided: bool,
    /// Local memory of all threads, one after the other.
    pub(super) local: Vec<u8>,
    pub(super) local_bytes: usize,
    pub(super) params: &'a [u8],
}

impl<G: Global> Memories<'_, G> {
    /// The bytes of a thread's access; none if it is not allowed.
    pub(super) fn bytes(
        &mut self,
        (space, address): (Space, u64),
        len: usize,
        thread: usize,
        usage: Usage,
    ) -> Option<&mut [u8]> {
        let within = |memory_bytes: usize| -> Option<std::ops::Range<usize>> {
            let start = usize::try_from(address).ok()?;
            let end = start.checked_add(len)?;
            (end <= memory_bytes).then_some(start..end)
        };
        match space {
            Space::Generic | Space::Global => self.global.bytes(address, len, usage),
            Space::Shared => {
                let place = within(self.shared.len())?;
                // Atomic updates of several warps do not conflict.
                if usage != Usage::ReadWrite {
                    let (warp, writes) = ((thread / WIDTH) as u32, usage.writes());
                    if self.uses.collide(place.start, len, warp, writes) {
                        self.has_collided = true;
                        return None;
                    }
                }
                Some(&mut self.shared[place])
            }
            Space::Local => {
                let place = within(self.local_bytes)?;
                let own = &mut self.local[thread * self.local_bytes..];
                Some(&mut own[place])
            }
            Space::Param => None,
        }
    }

    /// The bytes of a thread's read; none if it is not allowed.
    pub(super) fn read(&mut self, place: (Space, u64), len: usize, thread: usize) -> Option<&[u8]> {
        if place.0 == Space::Param {
            let start = usize::try_from(place.1).ok()?;
            return self.params.get(start..start.checked_add(len)?);
        }
        self.bytes(place, len, thread, Usage::Read).map(|bytes| &*bytes)
    }
}
