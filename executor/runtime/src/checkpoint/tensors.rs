//! Safetensors files: headers, and memory-mapped tensors.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use super::error::CheckpointError;
use super::scalar::num_bytes;
use crate::mapped::map;

/// Bytes of the length of a header, which precedes it.
const LENGTH_BYTES: usize = 8;

/// A safetensors file, memory-mapped. It must not change while it is used.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: PathBuf,
    map: Mmap,
    metadata: Metadata,
    data_start: usize,
}

/// A tensor in a mapped file.
#[derive(Debug)]
pub(super) struct Tensor<'a> {
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [usize],
    pub(super) bytes: &'a [u8],
}

impl TensorFile {
    pub(super) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let file = File::open(path).map_err(CheckpointError::io("read", path))?;
        let map = map(&file).map_err(CheckpointError::io("read", path))?;
        let (header_len, metadata) =
            SafeTensors::read_metadata(&map).map_err(|error| why_unreadable(path, &map, &error))?;
        let data_start = LENGTH_BYTES + header_len;
        Ok(Self { path: path.to_owned(), map, metadata, data_start })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors, in the order of the file.
    pub(super) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    pub(super) fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let TensorInfo { dtype, shape, data_offsets: (start, end) } = self.metadata.info(name)?;
        let bytes = &self.map[self.data_start + start..self.data_start + end];
        Some(Tensor { dtype: *dtype, shape, bytes })
    }
}

/// The bytes before the data of a file that holds `tensors` in sequence, and the offset of each tensor from the start
/// of the file.
pub(super) fn header(
    tensors: Vec<(String, Dtype, Vec<usize>)>,
    note: Option<(&str, &str)>,
) -> (Vec<u8>, Vec<u64>) {
    let mut end = 0;
    let mut starts = Vec::with_capacity(tensors.len());
    let infos = tensors.into_iter().map(|(name, dtype, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * num_bytes(dtype);
        starts.push(start);
        (name, TensorInfo { dtype, shape, data_offsets: (start, end) })
    });
    let infos = infos.collect();
    let notes = note.map(|(key, text)| [(key.to_owned(), text.to_owned())].into_iter().collect());
    let metadata = Metadata::new(notes, infos).expect("tensors lie one behind the other");
    let mut text = serde_json::to_vec(&metadata).expect("a header is JSON");
    text.resize(text.len().next_multiple_of(LENGTH_BYTES), b' ');
    let bytes = [&(text.len() as u64).to_le_bytes(), text.as_slice()].concat();
    let starts = starts.into_iter().map(|start| (bytes.len() + start) as u64).collect();
    (bytes, starts)
}

/// Syncs the entries of `directory` to disk, so that they survive a crash.
pub(super) fn sync_directory(directory: &Path) -> Result<(), CheckpointError> {
    let opened = File::open(directory).and_then(|directory| directory.sync_all());
    opened.map_err(CheckpointError::io("write", directory))
}

/// Refuses a file whose size is not `expected` bytes.
pub(super) fn check_size(path: &Path, expected: u64) -> Result<(), CheckpointError> {
    let found = fs::metadata(path).map_err(CheckpointError::io("read", path))?.len();
    if found == expected {
        Ok(())
    } else {
        Err(CheckpointError::Size { path: path.to_owned(), expected, found })
    }
}

/// The error of an unreadable file: its expected and actual size if its header is complete but its data are not; else
/// the error of safetensors.
fn why_unreadable(path: &Path, bytes: &[u8], error: &SafeTensorError) -> CheckpointError {
    let expected = match error {
        SafeTensorError::HeaderTooSmall => Some(LENGTH_BYTES),
        SafeTensorError::InvalidHeaderLength => header_len(bytes).map(|len| LENGTH_BYTES + len),
        SafeTensorError::MetadataIncompleteBuffer => header_len(bytes).and_then(|len| {
            let text = bytes.get(LENGTH_BYTES..LENGTH_BYTES + len)?;
            let metadata: Metadata = serde_json::from_slice(text).ok()?;
            Some(LENGTH_BYTES + len + metadata.data_len())
        }),
        _ => None,
    };
    match expected {
        Some(expected) => CheckpointError::Size {
            path: path.to_owned(),
            expected: expected as u64,
            found: bytes.len() as u64,
        },
        None => match other(bytes) {
            Some(found) => CheckpointError::malformed(
                path,
                &format!("it is {found}, not weights\nhint: {WEIGHTS}"),
            ),
            None => CheckpointError::malformed(path, error),
        },
    }
}

/// Hint that names the files which hold weights.
const WEIGHTS: &str =
    "weights are in `.safetensors` files: name one, or the folder of a model that has them";

/// The format of a file that is not safetensors, by its first bytes.
fn other(bytes: &[u8]) -> Option<&'static str> {
    const STARTS: [(&[u8], &str); 6] = [
        (b"{", "a text of JSON"),
        (b"[", "a text of JSON"),
        (b"PK\x03\x04", "a checkpoint of PyTorch"),
        (b"\x80", "a pickle of Python"),
        (b"GGUF", "a file of GGUF"),
        (b"\x89HDF", "a file of HDF5"),
    ];
    STARTS.iter().find(|(start, _)| bytes.starts_with(start)).map(|(_, found)| *found)
}

fn header_len(bytes: &[u8]) -> Option<usize> {
    let (len, _) = bytes.split_first_chunk()?;
    u64::from_le_bytes(*len).try_into().ok()
}
