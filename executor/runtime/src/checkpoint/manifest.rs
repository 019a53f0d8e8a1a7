//! Manifests of checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::CheckpointError;
use super::identity::ModelIdentity;
use super::parameter::ParameterId;
use super::shard::Piece;

/// The file that makes a checkpoint complete.
pub(super) const MANIFEST: &str = "manifest.json";
/// The `format` of manifests.
const FORMAT: &str = "executor checkpoint";
/// The format version that is written, and the latest that is read.
const VERSION: u64 = 1;

/// State of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    /// Steps taken.
    pub step: u64,
    /// Index of the next sample.
    pub next_sample: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// State of the optimizer.
    pub optimizer: OptimizerState,
    /// Identity of the model.
    pub model: ModelIdentity,
    /// Identity of the frozen weights, where there are any: a checkpoint has only trained weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// State of an optimizer in addition to its moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerState {
    /// Name of the optimizer, as in `adamw`.
    pub kind: String,
    /// Updates made. Steps whose gradients overflowed make none.
    pub num_updates: u64,
    /// The scale of the loss, where it is scaled.
    pub loss_scale: Option<LossScale>,
}

/// State of dynamic loss scaling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// Factor of the loss.
    pub scale: f64,
    /// Steps without overflow since the scale last changed.
    pub num_good_steps: u64,
}

/// Content of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: String,
    version: u64,
    pub(super) training: TrainingState,
    pub(super) world_size: u32,
    /// The whole shape of every parameter.
    pub(super) parameters: BTreeMap<ParameterId, Vec<usize>>,
    pub(super) files: Vec<RankFile>,
}

/// File of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankFile {
    pub(super) name: String,
    pub(super) num_bytes: u64,
    pub(super) sha256: String,
    /// The pieces; the name of each tensor begins with its index in this list.
    pub(super) pieces: Vec<Piece>,
}

/// Fields that manifests of all versions have.
#[derive(Deserialize)]
struct Version {
    format: String,
    version: u64,
}

impl Manifest {
    pub(super) fn new(
        training: TrainingState,
        world_size: u32,
        parameters: BTreeMap<ParameterId, Vec<usize>>,
        files: Vec<RankFile>,
    ) -> Self {
        let format = FORMAT.to_owned();
        Self { format, version: VERSION, training, world_size, parameters, files }
    }

    /// The manifest in the checkpoint `directory`.
    pub(super) fn read(directory: &Path) -> Result<Self, CheckpointError> {
        let path = directory.join(MANIFEST);
        if directory.is_dir() && !path.exists() {
            return Err(CheckpointError::Unsuitable(format!(
                "checkpoint `{}` is incomplete: it has no `manifest.json`, which is written last\nhint: use an earlier \
                 one; this one can be removed",
                directory.display()
            )));
        }
        let text = fs::read(&path).map_err(CheckpointError::io("read", &path))?;
        let malformed = |error: serde_json::Error| CheckpointError::malformed(&path, &error);
        let Version { format, version } = serde_json::from_slice(&text).map_err(malformed)?;
        if format != FORMAT {
            let problem = format!("its `format` is `{format}`, not `{FORMAT}`");
            return Err(CheckpointError::malformed(&path, &problem));
        }
        if version > VERSION {
            return Err(CheckpointError::NewerVersion { path, found: version, supported: VERSION });
        }
        let manifest: Self = serde_json::from_slice(&text).map_err(malformed)?;
        manifest.check().map_err(|problem| CheckpointError::malformed(&path, &problem))?;
        Ok(manifest)
    }

    /// Checks the manifest for contradictions.
    fn check(&self) -> Result<(), String> {
        for file in &self.files {
            for Piece { parameter, shard, .. } in &file.pieces {
                let shape = self.parameters.get(parameter);
                let shape =
                    shape.ok_or_else(|| format!("`{parameter}` has pieces, but no shape"))?;
                if !shard.fits(shape) {
                    return Err(format!(
                        "a piece of `{parameter}` is not within its shape {shape:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
