//! Memory-mapped files.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps a file into memory, read-only.
#[expect(unsafe_code, reason = "mapping a file is unsafe, as others may change it")]
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: nothing here writes to the file, and the map is read-only. If another process overwrites the file, other
    // numbers are read: every pattern of bits is a number, no number is trusted to be in range or to be text, and
    // headers are copied before they are checked. If another process truncates the file, the system ends this process
    // at the next read; checkpoints and weights are renamed into place, never overwritten.
    unsafe { Mmap::map(file) }
}
