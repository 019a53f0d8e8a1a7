//! Memory of the fake devices, which is memory of the host.
//!
//! Addresses are never reused, so that a use of memory after its free is noticed.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_void};

use super::codes::Code;
use crate::recording::Range;

/// Alignment of allocations, that of the driver.
const ALIGN: u64 = 512;

/// Kind of an allocation, which decides how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// On a device, in stream order.
    Stream,
    /// On a device, at once.
    Device,
    /// On the host, pinned.
    Pinned,
}

/// A live allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) range: Range,
    pub(super) origin: Origin,
    pub(super) device: u32,
}

/// All live allocations.
#[derive(Default)]
pub(super) struct Space {
    allocations: BTreeMap<u64, Allocation>,
    /// Used bytes of each device, without pinned memory.
    used: BTreeMap<u32, u64>,
}

const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 1 | 2;
const MAP_PRIVATE: c_int = 2;
const MAP_FIXED: c_int = 0x10;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;

#[expect(unsafe_code, reason = "pages are asked of the system")]
unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut c_void;
}

/// Bytes of an allocation, which has an address even if it is empty.
fn pages(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGN)
}

impl Space {
    /// Allocates memory if it fits a device's `room`. Its pages take no memory of the host before they are written.
    #[expect(unsafe_code, reason = "pages are asked of the system")]
    pub(super) fn allocate(
        &mut self,
        bytes: u64,
        origin: Origin,
        device: u32,
        room: u64,
    ) -> Result<u64, Code> {
        // In stream order, drivers return an address without memory.
        if bytes == 0 && origin != Origin::Stream {
            return Err(Code::INVALID_VALUE);
        }
        let len = pages(bytes);
        let used = self.used.entry(device).or_default();
        let is_of_device = origin != Origin::Pinned;
        if is_of_device && used.saturating_add(len) > room {
            return Err(Code::OUT_OF_MEMORY);
        }
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: new pages, at any address.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len as usize, PROT_READ_WRITE, flags, -1, 0) };
        if start.addr() == usize::MAX {
            return Err(Code::OUT_OF_MEMORY);
        }
        if is_of_device {
            *used += len;
        }
        let start = start.expose_provenance() as u64;
        let range = Range::new(start, bytes);
        self.allocations.insert(start, Allocation { range, origin, device });
        Ok(start)
    }

    /// Frees the allocation that starts at an address.
    #[expect(unsafe_code, reason = "pages are given back to the system")]
    pub(super) fn free(&mut self, start: u64) -> Result<(), Code> {
        let allocation = self.allocations.remove(&start).ok_or(Code::INVALID_VALUE)?;
        let len = pages(allocation.range.end - start);
        if allocation.origin != Origin::Pinned {
            *self.used.entry(allocation.device).or_default() -= len;
        }
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        let at = std::ptr::with_exposed_provenance_mut(start as usize);
        // SAFETY: the pages are those of the allocation, which no code may use any more. They are kept without content,
        // so that their addresses are not reused.
        unsafe { mmap(at, len as usize, PROT_NONE, flags, -1, 0) };
        Ok(())
    }

    /// Returns whether an allocation starts at an address.
    pub(super) fn begins(&self, start: u64) -> bool {
        self.allocations.contains_key(&start)
    }

    /// The allocation that contains an address.
    pub(super) fn at(&self, address: u64) -> Option<Allocation> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        (address < allocation.range.end).then_some(*allocation)
    }

    /// Returns whether a range is within one allocation.
    pub(super) fn holds(&self, range: Range) -> bool {
        range.is_empty() || self.at(range.start).is_some_and(|found| range.end <= found.range.end)
    }

    /// Fills a range with zeros, if it is allocated.
    ///
    /// The results of kernels are not known, but programs branch on numbers that they read back. Zeros are better than
    /// the values left by an earlier use of the memory.
    pub(super) fn blank(&self, range: Range) {
        if let Some(bytes) = self.bytes(range) {
            bytes.fill(0);
        }
    }

    /// The bytes of a range; empty if it is not allocated.
    pub(super) fn read(&self, range: Range) -> Vec<u8> {
        self.bytes(range).map_or_else(Vec::new, |bytes| bytes.to_vec())
    }

    /// Writes a range, if it is allocated.
    pub(super) fn write(&self, range: Range, bytes: &[u8]) {
        if let Some(place) = self.bytes(range) {
            place.copy_from_slice(bytes);
        }
    }

    #[expect(unsafe_code, reason = "memory of the made-up devices is used")]
    #[expect(clippy::mut_from_ref, reason = "it is not the memory of this structure")]
    fn bytes(&self, range: Range) -> Option<&mut [u8]> {
        if range.is_empty() || !self.holds(range) {
            return None;
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(range.start as usize);
        let len = (range.end - range.start) as usize;
        // SAFETY: the whole range is allocated and belongs to the calling program alone, and the slice is used before
        // anything else is done.
        Some(unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Allocated bytes of a device.
    pub(super) fn used(&self, device: u32) -> u64 {
        self.used.get(&device).copied().unwrap_or_default()
    }
}
