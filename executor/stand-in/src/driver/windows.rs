//! Global memory of a launch.

use super::space::Space;
use crate::compute::Global;
use crate::recording::{Access, Range, Usage};

/// The buffers of a kernel's arguments, each to be read, written, or both. The kernel may access no other memory.
pub(super) struct Windows(Vec<Access>);

impl Windows {
    /// The accesses whose memory is allocated.
    pub(super) fn new(accesses: Vec<Access>, space: &Space) -> Self {
        Self(accesses.into_iter().filter(|access| space.holds(access.range)).collect())
    }
}

impl Global for Windows {
    #[expect(unsafe_code, reason = "memory of the made-up devices is used")]
    fn bytes(&mut self, start: u64, len: usize, usage: Usage) -> Option<&mut [u8]> {
        let range = Range::new(start, len as u64);
        let may = |access: &Access| {
            let holds = access.range.start <= range.start && range.end <= access.range.end;
            let fits = access.usage == usage || access.usage == Usage::ReadWrite;
            holds && fits
        };
        self.0.iter().find(|access| may(access))?;
        let place = std::ptr::with_exposed_provenance_mut(start as usize);
        // SAFETY: the range is within an allocated buffer, as was checked when the launch began; the state is locked,
        // so the buffer is not freed meanwhile. The program itself must not use memory that it gave to a kernel, and
        // only one slice exists at a time, since it borrows `self`.
        Some(unsafe { std::slice::from_raw_parts_mut(place, len) })
    }
}
