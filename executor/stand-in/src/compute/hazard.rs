//! Uses of shared memory that no barrier stands between.
//!
//! Warps are taken through a block one after the other, so a barrier that is missing may do no harm
//! here, though it does on a GPU. So it is remembered who used what since the last barrier: another
//! warp must not read what one wrote, nor write what one read or wrote.

/// Bytes that are told apart.
const GRAIN: usize = 2;

/// Who used shared memory since the last barrier.
pub(super) struct Uses {
    places: Vec<Place>,
    /// Which part of the block's way it is, from a barrier to the next, over all blocks.
    now: u32,
}

/// The last uses of a few bytes.
#[derive(Clone, Copy, Default)]
struct Place {
    written: u32,
    writer: u32,
    read: u32,
    /// Warps, a bit each.
    readers: u32,
}

impl Uses {
    pub(super) fn new(bytes: usize) -> Self {
        Self { places: vec![Place::default(); bytes.div_ceil(GRAIN)], now: 1 }
    }

    /// All threads have come to a barrier.
    pub(super) fn pass(&mut self) {
        self.now += 1;
    }

    /// Takes down a use by a warp, and says whether another warp's stands against it.
    pub(super) fn collide(&mut self, start: usize, len: usize, warp: u32, writes: bool) -> bool {
        let now = self.now;
        let mut is_found = false;
        let places = &mut self.places[start / GRAIN..(start + len).div_ceil(GRAIN)];
        for place in places {
            is_found |= place.written == now && place.writer != warp;
            if writes {
                is_found |= place.read == now && place.readers & !(1 << warp) != 0;
                (place.written, place.writer) = (now, warp);
            } else {
                let others = if place.read == now { place.readers } else { 0 };
                (place.read, place.readers) = (now, others | 1 << warp);
            }
        }
        is_found
    }
}
