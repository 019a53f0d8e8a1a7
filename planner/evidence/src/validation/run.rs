//! A measured training step: a plan with measured numbers.

use ir::documents::Documents;
use ir::expert_load::ExpertLoad;
use ir::graph::Adapters;
use ir::layout::LayoutSpec;
use ir::plan::{MemoryUse, Training};
use ir::units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Reason why a run, or one of its numbers, cannot be represented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct Unsupported(String);

impl Unsupported {
    /// Unsupported for the given reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A measured run: its plan, with the measured time and memory.
///
/// Time and memory are `Ok(None)` where the source does not state them. In JSON, a value that cannot be represented is
/// `{"unsupported": REASON}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRun {
    /// Name within its file.
    pub id: String,
    /// GPU and precision, as the source names them: errors are also reported by group.
    #[serde(default)]
    pub group: String,
    /// Label of the problem: runs of a file with the same label differ only in their layout.
    #[serde(default)]
    pub problem: String,
    /// Label of the layout, the same for runs of one problem with equal layouts.
    #[serde(default)]
    pub variant: String,
    /// True if linear layers run in fewer than 16 bits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub few_bits: bool,
    /// True if the run ended for lack of memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ran_out_of_memory: bool,
    /// Step time, in seconds.
    #[serde(default = "not_stated", with = "known", skip_serializing_if = "is_not_stated")]
    pub step_time_seconds: Result<Option<f64>, Unsupported>,
    /// Peak memory of a GPU.
    #[serde(default = "not_stated", with = "known", skip_serializing_if = "is_not_stated")]
    pub peak_memory: Result<Option<MeasuredMemory>, Unsupported>,
    /// The plan that was run.
    #[serde(with = "known")]
    pub plan: Result<MeasuredPlan, Unsupported>,
    /// The source and its wording; not used in predictions.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub note: Value,
}

/// The plan of a measured run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredPlan {
    /// The model, in the form that [`Model::from_json`](ir::model::Model::from_json) reads.
    pub model: Map<String, Value>,
    /// Facts about the model's graph beyond its sizes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub graph: GraphFacts,
    /// Adapters that were trained while the model itself was frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Adapters>,
    /// Nodes and links.
    pub cluster: MeasuredCluster,
    /// Number of GPUs of the run.
    pub num_gpus: u32,
    /// Layout of the run.
    pub layout: LayoutSpec,
    /// True if layers are spread to minimise the time of the slowest stage, rather than evenly.
    #[serde(default, skip_serializing_if = "is_default")]
    pub balances_stages: bool,
    /// True if the vocabulary is sharded over the pipeline ranks; the vocabulary in `model` is then one shard.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shares_vocabulary: bool,
    /// True if the run is the forward and backward of one layer, without embedding and head.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_layer: bool,
    /// Batch, sequence, precision and optimizer.
    pub training: Training,
    /// Documents that make up the sequences, if attention stays within documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Documents>,
    /// Spread of tokens over experts by the routers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub expert_load: ExpertLoad,
    /// Preset of the framework that ran it.
    pub framework: String,
    /// Habits in which the run differs from its framework's file: a merge patch of that file (RFC 7386).
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub habits: Value,
    /// Numbers that the source states although they follow from the rest.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stated: StatedNumbers,
}

/// Facts about a model's graph beyond its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GraphFacts {
    /// True if attention stores its scores, as it does without a fused kernel.
    #[serde(skip_serializing_if = "is_default")]
    pub stores_scores: bool,
    /// True if dropout is applied where the model has it.
    #[serde(skip_serializing_if = "is_default")]
    pub dropout: bool,
    /// True if modules for multi-token prediction are trained.
    #[serde(skip_serializing_if = "is_default")]
    pub multi_token_prediction: bool,
}

/// A cluster preset, with the run's own nodes and links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCluster {
    /// Name of the preset.
    pub preset: String,
    /// Number of GPUs per node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus_per_node: Option<u32>,
    /// True if the GPUs of a node are connected by switches although the preset has direct links.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_switches: bool,
    /// Bandwidth of a GPU within its node, in bytes per second, in one direction.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_bytes_per_second: Option<f64>,
    /// Bandwidth of a GPU between nodes, in bytes per second, in one direction.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network_bytes_per_second: Option<f64>,
}

/// Numbers that follow from the model, the batch and the step time. A run that states different ones contradicts
/// itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StatedNumbers {
    /// Micro-batches of a replica in a step.
    #[serde(skip_serializing_if = "is_default")]
    pub n_microbatches: Option<u64>,
    /// Parameters of the model.
    #[serde(skip_serializing_if = "is_default")]
    pub n_params: Option<f64>,
    /// Tokens per second and GPU.
    #[serde(skip_serializing_if = "is_default")]
    pub tokens_per_s_per_gpu: Option<f64>,
    /// Sequences per second.
    #[serde(skip_serializing_if = "is_default")]
    pub samples_per_s: Option<f64>,
}

/// Measured memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredMemory {
    /// Bytes at the peak.
    pub bytes: Bytes,
    /// Part of the memory that was counted.
    pub kind: MemoryKind,
    /// Pipeline rank whose memory it is.
    pub of: MemoryOf,
}

/// Part of a GPU's memory that a measurement counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Memory that the allocator has handed out.
    #[default]
    Allocated,
    /// Memory that the allocator has reserved on the device.
    Reserved,
    /// All memory of the process on the device.
    Process,
}

impl MemoryKind {
    /// The part of a predicted memory that this kind of measurement counts.
    pub fn of(self, memory: &MemoryUse) -> Bytes {
        let process = memory.total();
        let reserved = process.saturating_sub(memory.context_bytes);
        match self {
            Self::Process => process,
            Self::Reserved => reserved,
            Self::Allocated => reserved.saturating_sub(memory.allocator_bytes),
        }
    }
}

/// Pipeline rank for which a source states the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryOf {
    /// The rank with the most memory in use.
    #[default]
    FullestRank,
    /// The first rank.
    FirstRank,
    /// The last rank.
    LastRank,
    /// The first or the last rank, whichever uses more.
    FirstOrLastRank,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::unnecessary_wraps, reason = "a default is of its field's type")]
fn not_stated<T>() -> Result<Option<T>, Unsupported> {
    Ok(None)
}

fn is_not_stated<T>(value: &Result<Option<T>, Unsupported>) -> bool {
    matches!(value, Ok(None))
}

/// JSON of a value, or of the reason why there is none.
mod known {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::{Value, json};

    use super::Unsupported;

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Result<T, Unsupported>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Ok(value) => value.serialize(serializer),
            Err(reason) => json!({ "unsupported": reason }).serialize(serializer),
        }
    }

    pub(super) fn deserialize<'a, T: DeserializeOwned, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<Result<T, Unsupported>, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.get("unsupported").and_then(Value::as_str) {
            Some(reason) => Ok(Err(Unsupported::new(reason))),
            None => serde_json::from_value(value).map(Ok).map_err(D::Error::custom),
        }
    }
}
