//! Rows of bytes that are copied.
#![expect(unsafe_code, reason = "memory of the program and of the made-up devices is used")]

/// One end of a copy of rows.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) start: u64,
    pub(super) pitch: u64,
    pub(super) is_host: bool,
}

/// Rows to be copied.
pub(super) struct Rows {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) width: u64,
    pub(super) height: u64,
    /// What was at the source, one row after the other, if that is not to be looked at any more.
    pub(super) source: Option<Vec<u8>>,
}

impl Rows {
    /// A row of one end.
    fn pointer(end: &End, row: u64) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut((end.start + row * end.pitch) as usize)
    }

    /// What is at the source.
    pub(super) fn kept(&self) -> Vec<u8> {
        let row = |row| {
            let start = Self::pointer(&self.from, row).cast_const();
            // SAFETY: what is of the host is there, as the caller vouches while the call lasts.
            unsafe { std::slice::from_raw_parts(start, self.width as usize) }
        };
        (0..self.height).flat_map(row).copied().collect()
    }

    /// Copies them.
    pub(super) fn copy(&self) {
        for row in 0..self.height {
            let to = Self::pointer(&self.to, row);
            let from = match &self.source {
                Some(kept) => kept[(row * self.width) as usize..].as_ptr(),
                None => Self::pointer(&self.from, row).cast_const(),
            };
            // SAFETY: what is of a device is there, as was checked, until it is freed, which stands
            // in the same line; of the rest the caller vouches.
            unsafe { std::ptr::copy(from, to, self.width as usize) };
        }
    }
}
