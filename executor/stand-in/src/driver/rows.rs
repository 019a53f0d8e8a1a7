//! Copies of rows of bytes.
#![expect(unsafe_code, reason = "memory of the program and of the made-up devices is used")]

/// One end of a copy of rows.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) start: u64,
    pub(super) pitch: u64,
    pub(super) is_host: bool,
}

/// Rows to copy.
pub(super) struct Rows {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) width: u64,
    pub(super) height: u64,
    /// The source's content when the copy was called, one row after the other, if the source may change afterwards.
    pub(super) source: Option<Vec<u8>>,
}

impl Rows {
    /// A row of one end.
    fn pointer(end: &End, row: u64) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut((end.start + row * end.pitch) as usize)
    }

    /// The content of the source.
    pub(super) fn kept(&self) -> Vec<u8> {
        let row = |row| {
            let start = Self::pointer(&self.from, row).cast_const();
            // SAFETY: the caller vouches that memory of the host is valid while the call lasts.
            unsafe { std::slice::from_raw_parts(start, self.width as usize) }
        };
        (0..self.height).flat_map(row).copied().collect()
    }

    /// Copies the rows.
    pub(super) fn copy(&self) {
        for row in 0..self.height {
            let to = Self::pointer(&self.to, row);
            let from = match &self.source {
                Some(kept) => kept[(row * self.width) as usize..].as_ptr(),
                None => Self::pointer(&self.from, row).cast_const(),
            };
            // SAFETY: memory of a device was checked to be allocated, and is until it is freed, which happens in the
            // same queue; the caller vouches for the rest.
            unsafe { std::ptr::copy(from, to, self.width as usize) };
        }
    }
}
