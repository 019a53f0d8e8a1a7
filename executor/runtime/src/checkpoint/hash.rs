//! Hashes of files.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use sha2::{Digest, Sha256};

/// A file that counts and hashes what is written to it.
pub(super) struct HashingFile {
    file: BufWriter<File>,
    num_bytes: u64,
    hash: Sha256,
}

impl HashingFile {
    pub(super) fn new(file: File) -> Self {
        Self { file: BufWriter::new(file), num_bytes: 0, hash: Sha256::new() }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.num_bytes += bytes.len() as u64;
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }

    /// Waits until all bytes are on the disk. Returns the number of bytes and their hash.
    pub(super) fn finish(self) -> io::Result<(u64, String)> {
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok((self.num_bytes, format!("{:x}", self.hash.finalize())))
    }
}
