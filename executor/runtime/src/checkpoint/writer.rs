//! Checkpoints, written by all ranks and completed by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use executor_kernels::array::Element;

use super::directory::{self, Stage};
use super::error::CheckpointError;
use super::hash::HashingFile;
use super::manifest::{MANIFEST, Manifest, RankFile, TrainingState};
use super::parameter::{ModelParameter, ParameterId};
use super::scalar::{dtype, encoded};
use super::shard::{Piece, PieceKind, Shard};
use super::tensors::{check_size, header, sync_directory};

/// A checkpoint that is being written. It counts only once it is committed; on any failure before, earlier checkpoints
/// stay.
///
/// One rank begins it and, after a barrier, all others join it; each writes its rank's file; after
/// another barrier one rank commits it.
#[derive(Clone, Debug)]
pub struct Writer {
    directory: PathBuf,
    partial: PathBuf,
    step: u64,
}

impl Writer {
    /// Begins the checkpoint of `step` in `directory`, which is created if it is missing. Removes partial files of
    /// crashed runs, so only one run may write to a directory at a time.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`] if the directory cannot be written to.
    pub fn begin(directory: &Path, step: u64) -> Result<Self, CheckpointError> {
        fs::create_dir_all(directory).map_err(CheckpointError::io("create", directory))?;
        directory::clean(directory)?;
        let writer = Self::join(directory, step);
        fs::create_dir(&writer.partial).map_err(CheckpointError::io("create", &writer.partial))?;
        Ok(writer)
    }

    /// The checkpoint that another rank began.
    pub fn join(directory: &Path, step: u64) -> Self {
        let partial = Stage::Partial.path(directory, step);
        Self { directory: directory.to_owned(), partial, step }
    }

    /// Writes the pieces of `rank` in order, with the values that `values` gives, as numbers of type `element`. A
    /// replicated piece has to be written by only one rank, but may be written by more.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`], as when the disk is full; the rank's file is then removed.
    ///
    /// # Panics
    ///
    /// If `values` gives another number of values than the piece has.
    pub fn write_rank(
        &self,
        rank: u32,
        element: Element,
        pieces: &[Piece],
        values: impl FnMut(&Piece) -> Vec<f64>,
    ) -> Result<(), CheckpointError> {
        let paths = self.rank_paths(rank);
        let written = write_pieces(&paths, element, pieces, values);
        if written.is_err() {
            for path in &paths {
                // The disk may be full for other ranks too; an error of this removal is ignored.
                let _ = fs::remove_file(path);
            }
        }
        written
    }

    /// Completes the checkpoint, after all `world_size` ranks have written, and removes older checkpoints except the
    /// newest `num_kept`, this one included. Returns its directory.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if a rank has not written, elements of a parameter are missing, or the system refuses. The
    /// checkpoint is then removed, and all others are unchanged.
    pub fn commit(
        self,
        training: TrainingState,
        world_size: u32,
        parameters: &[ModelParameter],
        num_kept: NonZeroUsize,
    ) -> Result<PathBuf, CheckpointError> {
        match self.try_commit(training, world_size, parameters) {
            Ok(path) => directory::prune(&self.directory, self.step, num_kept.get()).map(|()| path),
            Err(error) => {
                let _ = self.abort();
                Err(error)
            }
        }
    }

    /// Aborts the checkpoint and removes its files.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`] if they cannot be removed. The next checkpoint then removes them.
    pub fn abort(self) -> Result<(), CheckpointError> {
        directory::remove(&self.partial)
    }

    fn try_commit(
        &self,
        training: TrainingState,
        world_size: u32,
        parameters: &[ModelParameter],
    ) -> Result<PathBuf, CheckpointError> {
        let mut files = Vec::with_capacity(world_size as usize);
        for rank in 0..world_size {
            let [data, listing] = self.rank_paths(rank);
            let text = fs::read(&listing).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => CheckpointError::Unsuitable(format!(
                    "rank {rank} of {world_size} has not written to checkpoint `{}`",
                    self.partial.display()
                )),
                _ => CheckpointError::io("read", &listing)(error),
            })?;
            let file: RankFile = serde_json::from_slice(&text)
                .map_err(|error| CheckpointError::malformed(&listing, &error))?;
            check_size(&data, file.num_bytes)?;
            files.push(file);
        }
        self.check_whole(parameters, &files)?;

        let shapes = parameters.iter().map(|p| (p.id.clone(), p.shape.clone())).collect();
        let manifest = Manifest::new(training, world_size, shapes, files);
        let path = self.partial.join(MANIFEST);
        write_json(&path, &manifest)?.sync_all().map_err(CheckpointError::io("write", &path))?;
        for rank in 0..world_size {
            let [_, listing] = self.rank_paths(rank);
            fs::remove_file(&listing).map_err(CheckpointError::io("remove", &listing))?;
        }
        sync_directory(&self.partial)?;
        directory::complete(&self.directory, self.step)
    }

    /// Checks that every weight is there, and every moment of parameters that have moments, so that an unreadable
    /// checkpoint does not replace a readable one.
    fn check_whole(
        &self,
        parameters: &[ModelParameter],
        files: &[RankFile],
    ) -> Result<(), CheckpointError> {
        let mut shards: BTreeMap<(&ParameterId, PieceKind), Vec<&Shard>> = BTreeMap::new();
        for piece in files.iter().flat_map(|file| &file.pieces) {
            shards.entry((&piece.parameter, piece.kind)).or_default().push(&piece.shard);
        }
        let weights = parameters.iter().map(|parameter| (&parameter.id, PieceKind::Weight));
        let all: BTreeSet<_> = shards.keys().copied().chain(weights).collect();
        let shapes: BTreeMap<_, _> = parameters.iter().map(|p| (&p.id, &p.shape)).collect();
        for (parameter, kind) in all {
            let Some(shape) = shapes.get(parameter) else {
                return Err(CheckpointError::unknown(&self.partial, parameter));
            };
            let there = shards.remove(&(parameter, kind)).unwrap_or_default();
            assert!(there.iter().all(|shard| shard.fits(shape)), "pieces are within `{parameter}`");
            let whole = Shard::whole(shape);
            if let Some(range) = whole.first_gap(there) {
                let (path, parameter) = (self.partial.clone(), parameter.clone());
                return Err(CheckpointError::Gap {
                    path,
                    parameter,
                    kind,
                    range,
                    len: whole.len(),
                });
            }
        }
        Ok(())
    }

    /// Paths of a rank's pieces, and of their list, which goes into the manifest.
    fn rank_paths(&self, rank: u32) -> [PathBuf; 2] {
        ["safetensors", "json"].map(|kind| self.partial.join(format!("rank-{rank:05}.{kind}")))
    }
}

/// Writes pieces to the file `data`, and then their list to `listing`.
fn write_pieces(
    [data, listing]: &[PathBuf; 2],
    element: Element,
    pieces: &[Piece],
    mut values: impl FnMut(&Piece) -> Vec<f64>,
) -> Result<(), CheckpointError> {
    let dtype = dtype(element);
    let named = pieces.iter().enumerate();
    let tensors =
        named.map(|(index, piece)| (piece.tensor_name(index), dtype, vec![piece.shard.len()]));
    let (header, _) = header(tensors.collect(), None);

    let write = |error| CheckpointError::io("write", data)(error);
    let file = File::create_new(data).map_err(CheckpointError::io("create", data))?;
    let mut file = HashingFile::new(file);
    file.write(&header).map_err(write)?;
    for piece in pieces {
        let values = values(piece);
        assert_eq!(values.len(), piece.shard.len(), "values of `{}`", piece.parameter);
        file.write(&encoded(&values, dtype)).map_err(write)?;
    }
    let (num_bytes, sha256) = file.finish().map_err(write)?;

    let name = data.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let listed = RankFile { name, num_bytes, sha256, pieces: pieces.to_vec() };
    // The list goes into the manifest, so it needs no sync to disk.
    write_json(listing, &listed).map(drop)
}

/// Writes a new file without syncing it to disk.
fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<File, CheckpointError> {
    let text = serde_json::to_vec_pretty(value).expect("its keys are text and its numbers finite");
    let created = File::create_new(path).and_then(|mut file| {
        file.write_all(&text)?;
        Ok(file)
    });
    created.map_err(CheckpointError::io("write", path))
}
