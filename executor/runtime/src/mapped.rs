//! Memory-mapped files.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps a file into memory, read-only.
#[expect(unsafe_code, reason = "mapping a file is unsafe, as others may change it")]
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: nothing here writes to the file, and the map is read-only. Were another process to
    // overwrite it, other numbers would be read: every pattern of bits is one, none is trusted to be in
    // range or text, and headers are copied before they are checked. Were it to cut the file short, the
    // system would end this process at the next read; checkpoints and weights are renamed into place,
    // never written over.
    unsafe { Mmap::map(file) }
}
