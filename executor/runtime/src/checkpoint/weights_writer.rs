//! Writing of safetensors files that other tools read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use executor_kernels::array::Element;
use safetensors::Dtype;
use tempfile::NamedTempFile;

use super::error::CheckpointError;
use super::names::{Orientation, Stored};
use super::parameter::{ModelParameter, ParameterId};
use super::scalar::{dtype, encoded, num_bytes};
use super::shard::Shard;
use super::tensors::{header, sync_directory};
use super::weights::Places;

/// Metadata that transformers requires in a file.
const FORMAT_NOTE: (&str, &str) = ("format", "pt");

/// A file of weights that is written parameter by parameter. It is renamed to its path once all parameters are written;
/// if it is dropped before that, it is deleted.
#[derive(Debug)]
pub struct WeightsWriter {
    path: PathBuf,
    file: NamedTempFile,
    dtype: Dtype,
    pending: BTreeMap<ParameterId, (ModelParameter, Stored)>,
    /// Offset of each tensor in the file, in bytes.
    starts: BTreeMap<String, u64>,
}

impl WeightsWriter {
    /// A file at `path` for all of `parameters`, in the tensors that `stored` gives, with elements of type `element`.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if a parameter has no name or the file cannot be created.
    pub fn create(
        path: &Path,
        stored: impl Fn(&ModelParameter) -> Option<Stored>,
        parameters: &[ModelParameter],
        element: Element,
    ) -> Result<Self, CheckpointError> {
        let dtype = dtype(element);
        let mut pending = BTreeMap::new();
        let mut shapes = BTreeMap::new();
        for parameter in parameters {
            let stored =
                stored(parameter).ok_or_else(|| CheckpointError::unnamed(&parameter.id))?;
            shapes.extend(stored.tensors.iter().map(|name| (name.clone(), stored.shape.clone())));
            pending.insert(parameter.id.clone(), (parameter.clone(), stored));
        }
        let names: Vec<String> = shapes.keys().cloned().collect();
        let tensors = shapes.into_iter().map(|(name, shape)| (name, dtype, shape)).collect();
        let (header, starts) = header(tensors, Some(FORMAT_NOTE));

        let mut builder = tempfile::Builder::new();
        builder.prefix(".weights-");
        // The mode of an ordinary new file; by default, only the owner can read a temporary file.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file =
            builder.tempfile_in(folder(path)).map_err(CheckpointError::io("create", path))?;
        file.write_all(&header).map_err(CheckpointError::io("write", path))?;
        let starts = names.into_iter().zip(starts).collect();
        Ok(Self { path: path.to_owned(), file, dtype, pending, starts })
    }

    /// Writes a whole parameter, in row-major order of the model's dimensions. Parameters may come in any order.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`], as when the disk is full.
    ///
    /// # Panics
    ///
    /// If the model has no such parameter, it was written before, or it has another number of elements.
    pub fn write(
        &mut self,
        parameter: &ParameterId,
        values: &[f64],
    ) -> Result<(), CheckpointError> {
        let (parameter, stored) =
            self.pending.remove(parameter).expect("a parameter is written once");
        assert_eq!(values.len(), parameter.num_elements(), "all of `{}`", parameter.id);
        let places = Places::new(&parameter, &stored, &Shard::whole(&parameter.shape).part);
        let per_tensor = values.len() / stored.tensors.len();
        for (name, values) in stored.tensors.iter().zip(values.chunks(per_tensor.max(1))) {
            let start = self.starts[name];
            self.place(start, &stored, &places, values)
                .map_err(CheckpointError::io("write", &self.path))?;
        }
        Ok(())
    }

    /// Completes the file and renames it to its path, where it replaces a file that was there.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if a parameter was not written, or the system refuses. A file that was at the path before is
    /// then still there.
    pub fn finish(self) -> Result<(), CheckpointError> {
        let Self { path, file, pending, .. } = self;
        if let Some(parameter) = pending.into_keys().next() {
            return Err(CheckpointError::Unsuitable(format!(
                "parameter `{parameter}` was not written to `{}`",
                path.display()
            )));
        }
        file.as_file().sync_all().map_err(CheckpointError::io("write", &path))?;
        if let Ok(there) = fs::metadata(&path) {
            let kept = file.as_file().set_permissions(there.permissions());
            kept.map_err(CheckpointError::io("write", &path))?;
        }
        let renamed = file.persist(&path).map_err(|error| error.error);
        renamed.map_err(CheckpointError::io("write", &path))?;
        sync_directory(folder(&path))
    }

    /// Writes a parameter's elements in a tensor that begins at byte `start`.
    fn place(
        &mut self,
        start: u64,
        stored: &Stored,
        places: &Places,
        values: &[f64],
    ) -> io::Result<()> {
        let ends = |places: &[usize]| Some((*places.iter().min()?, *places.iter().max()?));
        let (Some(rows), Some(columns)) = (ends(&places.rows), ends(&places.columns)) else {
            return Ok(());
        };
        let (first, last) = (rows.0 + columns.0, rows.1 + columns.1);
        let bytes = encoded(values, self.dtype);
        if stored.orientation == Orientation::InputsFirst && stored.fused.is_none() {
            return self.write_at(start, first, &bytes);
        }
        // Elements of other parameters in between stay.
        let mut all = if stored.fused.is_some() {
            self.read_at(start, first, last + 1 - first)?
        } else {
            vec![0; (last + 1 - first) * num_bytes(self.dtype)]
        };
        let (width, size) = (places.columns.len(), num_bytes(self.dtype));
        places.for_each(|r, c, place| {
            let (from, to) = ((r * width + c) * size, (place - first) * size);
            all[to..to + size].copy_from_slice(&bytes[from..from + size]);
        });
        self.write_at(start, first, &all)
    }

    /// The bytes of `count` elements from number `first` on; zeros where nothing was written yet.
    fn read_at(&mut self, start: u64, first: usize, count: usize) -> io::Result<Vec<u8>> {
        let size = num_bytes(self.dtype);
        self.file.seek(SeekFrom::Start(start + (first * size) as u64))?;
        let mut bytes = Vec::with_capacity(count * size);
        Read::by_ref(&mut self.file).take((count * size) as u64).read_to_end(&mut bytes)?;
        bytes.resize(count * size, 0);
        Ok(bytes)
    }

    /// Writes elements from number `first` on, in a tensor that begins at byte `start`.
    fn write_at(&mut self, start: u64, first: usize, bytes: &[u8]) -> io::Result<()> {
        let offset = start + (first * num_bytes(self.dtype)) as u64;
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.write_all(bytes)
    }
}

/// The directory that a file is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
