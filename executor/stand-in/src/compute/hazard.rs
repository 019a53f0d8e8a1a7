//! Race detection in shared memory: accesses without a barrier between them.
//!
//! Warps execute one after the other, so a missing barrier may have no effect here, although it has on a GPU. So the
//! accesses since the last barrier are recorded: a warp must not read what another warp has written since, nor write
//! what another warp has read or written since.

/// Granularity of detection in bytes.
const GRAIN: usize = 2;

/// Accesses to shared memory since the last barrier.
pub(super) struct Uses {
    granules: Vec<GranuleAccesses>,
    /// Number of the interval between barriers, counted over all blocks.
    now: u32,
}

/// The last accesses to one granule.
#[derive(Clone, Copy, Default)]
struct GranuleAccesses {
    written: u32,
    writer: u32,
    read: u32,
    /// Reading warps, a bit each.
    readers: u32,
}

impl Uses {
    pub(super) fn new(bytes: usize) -> Self {
        Self { granules: vec![GranuleAccesses::default(); bytes.div_ceil(GRAIN)], now: 1 }
    }

    /// Starts a new interval: all threads have passed a barrier.
    pub(super) fn pass(&mut self) {
        self.now += 1;
    }

    /// Records an access of a warp, and returns whether it conflicts with one of another warp.
    pub(super) fn collide(&mut self, start: usize, len: usize, warp: u32, writes: bool) -> bool {
        let now = self.now;
        let mut is_found = false;
        let granules = &mut self.granules[start / GRAIN..(start + len).div_ceil(GRAIN)];
        for granule in granules {
            is_found |= granule.written == now && granule.writer != warp;
            if writes {
                is_found |= granule.read == now && granule.readers & !(1 << warp) != 0;
                (granule.written, granule.writer) = (now, warp);
            } else {
                let others = if granule.read == now { granule.readers } else { 0 };
                (granule.read, granule.readers) = (now, others | 1 << warp);
            }
        }
        is_found
    }
}
