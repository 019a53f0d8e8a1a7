//! Checkpoints, read in any layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::error::CheckpointError;
use super::identity::ModelIdentity;
use super::manifest::{Manifest, RankFile, TrainingState};
use super::parameter::{ModelParameter, ParameterId};
use super::scalar::{READABLE, decode, num_bytes};
use super::shard::{PieceKind, Shard};
use super::tensors::{Tensor, TensorFile, check_size};

/// A complete checkpoint. Its files are mapped as they are needed, and must not change meanwhile.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    training: TrainingState,
    parameters: BTreeMap<ParameterId, Vec<usize>>,
    files: Vec<PieceFile>,
    /// Pieces by parameter and kind, each shard once: the index of the file, and of the piece in the file's list.
    pieces: BTreeMap<(ParameterId, PieceKind), Vec<(usize, usize)>>,
}

/// A rank's file, opened when a piece in it is first read.
#[derive(Debug)]
struct PieceFile {
    listed: RankFile,
    opened: OnceLock<TensorFile>,
}

impl State {
    /// The checkpoint in directory `path`, such as [`super::latest`] finds.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if the checkpoint is incomplete, was written by a later version of the program, or lacks a
    /// file or a part of one. Only the sizes of files are checked; [`Self::verify`] checks their bytes.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let Manifest { training, parameters, files, .. } = Manifest::read(path)?;
        let mut pieces: BTreeMap<_, Vec<(usize, usize)>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (file, listed) in files.iter().enumerate() {
            check_size(&path.join(&listed.name), listed.num_bytes)?;
            for (index, piece) in listed.pieces.iter().enumerate() {
                let key = (piece.parameter.clone(), piece.kind);
                if seen.insert((key.clone(), piece.shard.key())) {
                    pieces.entry(key).or_default().push((file, index));
                }
            }
        }
        let files = files.into_iter().map(|listed| PieceFile { listed, opened: OnceLock::new() });
        Ok(Self { path: path.to_owned(), training, parameters, files: files.collect(), pieces })
    }

    /// The state of training: step, seed, optimizer.
    pub fn training(&self) -> &TrainingState {
        &self.training
    }

    /// Refuses a checkpoint whose model is not that of `parameters`.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] with the first parameter that differs.
    pub fn check_model(
        &self,
        model: &ModelIdentity,
        parameters: &[ModelParameter],
    ) -> Result<(), CheckpointError> {
        let difference = self.first_difference(parameters);
        let found = &self.training.model;
        if found.sha256 == model.sha256 && difference.is_none() {
            return Ok(());
        }
        let equal = "all parameters have the same shapes, but not all of the description is equal";
        Err(CheckpointError::Unsuitable(format!(
            "checkpoint `{}` is of {found}, not of {model}: {}\nhint: run the model that it is of, or name another \
             directory",
            self.path.display(),
            difference.as_deref().unwrap_or(equal)
        )))
    }

    /// The sizes of a parameter's dimensions; none if the checkpoint does not have it.
    pub fn shape(&self, parameter: &ParameterId) -> Option<&[usize]> {
        self.parameters.get(parameter).map(Vec::as_slice)
    }

    /// The elements of a shard, in the shard's order, from all pieces that overlap it. The numbers are unchanged since
    /// they were written.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if the checkpoint does not have all of them, or has them in a type that cannot be read.
    ///
    /// # Panics
    ///
    /// If the shard is not within the parameter.
    pub fn read(
        &self,
        parameter: &ParameterId,
        kind: PieceKind,
        shard: &Shard,
    ) -> Result<Vec<f64>, CheckpointError> {
        let Some(shape) = self.parameters.get(parameter) else {
            return Err(CheckpointError::unknown(&self.path, parameter));
        };
        assert!(shard.fits(shape), "a shard of `{parameter}` is within its shape {shape:?}");
        let key = (parameter.clone(), kind);
        let places = self.pieces.get(&key).map_or(&[][..], Vec::as_slice);
        let shards = || places.iter().map(|place| self.shard(*place));
        if let Some(range) = shard.first_gap(shards()) {
            let (path, (parameter, kind)) = (self.path.clone(), key);
            return Err(CheckpointError::Gap { path, parameter, kind, range, len: shard.len() });
        }
        let mut values = vec![0.0; shard.len()];
        for place in places {
            self.copy(*place, shard, &mut values)?;
        }
        Ok(values)
    }

    /// Reads all files and compares their hashes with the manifest's.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Changed`] for the first file that differs.
    pub fn verify(&self) -> Result<(), CheckpointError> {
        for RankFile { name, sha256, .. } in self.files.iter().map(|file| &file.listed) {
            let path = self.path.join(name);
            let mut hash = Sha256::new();
            let copied = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut hash));
            copied.map_err(CheckpointError::io("read", &path))?;
            let found = format!("{:x}", hash.finalize());
            if found != *sha256 {
                return Err(CheckpointError::Changed { path, expected: sha256.clone(), found });
            }
        }
        Ok(())
    }

    /// Copies the overlap of a piece and a shard to its offset in `values`.
    fn copy(
        &self,
        place: (usize, usize),
        shard: &Shard,
        values: &mut [f64],
    ) -> Result<(), CheckpointError> {
        let mut runs = Vec::new();
        shard.overlap(self.shard(place), |to, from, len| runs.push((to, from, len)));
        if runs.is_empty() {
            return Ok(());
        }
        let (name, file, tensor) = self.tensor(place)?;
        let width = num_bytes(tensor.dtype);
        for (to, from, len) in runs {
            let bytes = &tensor.bytes[from * width..(from + len) * width];
            decode(bytes, tensor.dtype, &mut values[to..to + len]).ok_or_else(|| {
                CheckpointError::element_type(file.path(), &name, tensor.dtype, READABLE)
            })?;
        }
        Ok(())
    }

    fn shard(&self, (file, index): (usize, usize)) -> &Shard {
        &self.files[file].listed.pieces[index].shard
    }

    /// The tensor of a piece, with its name and file.
    fn tensor(
        &self,
        (file, index): (usize, usize),
    ) -> Result<(String, &TensorFile, Tensor<'_>), CheckpointError> {
        let PieceFile { listed, opened } = &self.files[file];
        let opened = if let Some(opened) = opened.get() {
            opened
        } else {
            let file = TensorFile::open(&self.path.join(&listed.name))?;
            opened.get_or_init(|| file)
        };
        let name = listed.pieces[index].tensor_name(index);
        let len = listed.pieces[index].shard.len();
        let tensor = opened.tensor(&name).filter(|tensor| tensor.shape == [len]);
        let tensor = tensor.ok_or_else(|| {
            let problem = format!("it has no tensor `{name}` of {len} elements");
            CheckpointError::malformed(opened.path(), &problem)
        })?;
        Ok((name, opened, tensor))
    }

    /// Describes the first parameter that only one of the checkpoint and `parameters` has, or whose shape differs.
    fn first_difference(&self, parameters: &[ModelParameter]) -> Option<String> {
        let differs = |parameter: &ModelParameter| {
            let (id, shape) = (&parameter.id, &parameter.shape);
            match self.parameters.get(id) {
                None => Some(format!("the checkpoint has no parameter `{id}`")),
                Some(found) if found != shape => Some(format!(
                    "the checkpoint's parameter `{id}` has shape {found:?}, the model's {shape:?}"
                )),
                Some(_) => None,
            }
        };
        let more = || {
            let known = |id: &&ParameterId| parameters.iter().all(|parameter| parameter.id != **id);
            let id = self.parameters.keys().find(known)?;
            Some(format!("the model has no parameter `{id}`, which the checkpoint has"))
        };
        parameters.iter().find_map(differs).or_else(more)
    }
}
