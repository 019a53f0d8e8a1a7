//! A measured training step: a plan with a number.

use ir::layout::LayoutSpec;
use ir::plan::{MemoryUse, Training};
use ir::units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Reason why a run, or a number of it, cannot be represented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct Unsupported(String);

impl Unsupported {
    /// Unsupported for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A run that was measured: what was run, and the time and memory that it took.
///
/// Time and memory are `Ok(None)` where the source does not state them. In JSON, what cannot be represented is
/// `{"unsupported": REASON}` in the place of the value.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRun {
    /// Name within its file.
    pub id: String,
    /// GPU and precision, as the source calls them: errors are also stated by group.
    #[serde(default)]
    pub group: String,
    /// Label of the problem: runs of a file that have it in common differ in their layout alone.
    #[serde(default)]
    pub problem: String,
    /// Label of the layout, the same for runs of one problem with equal layouts.
    #[serde(default)]
    pub variant: String,
    /// Whether linear layers run in fewer than 16 bits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub few_bits: bool,
    /// Whether the run ended for lack of memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ran_out_of_memory: bool,
    /// Time of a step.
    #[serde(default = "not_stated", with = "known", skip_serializing_if = "is_not_stated")]
    pub step_time_seconds: Result<Option<f64>, Unsupported>,
    /// Memory of a GPU at its peak.
    #[serde(default = "not_stated", with = "known", skip_serializing_if = "is_not_stated")]
    pub peak_memory: Result<Option<MeasuredMemory>, Unsupported>,
    /// The plan that was run.
    #[serde(with = "known")]
    pub plan: Result<MeasuredPlan, Unsupported>,
    /// The source and its words, on which nothing depends.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub note: Value,
}

/// The plan of a measured run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredPlan {
    /// The model as [`Model::from_json`](ir::model::Model::from_json) reads it.
    pub model: Map<String, Value>,
    /// Computation of the model beyond its sizes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub graph: GraphFacts,
    /// Nodes and links.
    pub cluster: MeasuredCluster,
    /// GPUs of the run.
    pub num_gpus: u32,
    /// Layout of the run.
    pub layout: LayoutSpec,
    /// Whether layers are spread so that the slowest stage is as fast as can be, rather than evenly.
    #[serde(default, skip_serializing_if = "is_default")]
    pub balances_stages: bool,
    /// Whether each pipeline rank has a part of the vocabulary; the vocabulary in `model` is then that part.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shares_vocabulary: bool,
    /// Whether the run is one layer's forward and backward alone, without embedding and head.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_layer: bool,
    /// Batch, sequence, precision and optimizer.
    pub training: Training,
    /// Preset of the framework that ran it.
    pub framework: String,
    /// Habits in which the run differs from the framework's file: a merge patch of that file (RFC 7386).
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub habits: Value,
    /// Numbers that follow from the rest, as the source states them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stated: StatedNumbers,
}

/// Computation of a model's graph that its sizes do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct GraphFacts {
    /// Whether attention stores its scores, as attention without a fused kernel does.
    #[serde(skip_serializing_if = "is_default")]
    pub stores_scores: bool,
    /// Whether dropout is applied where the model has it.
    #[serde(skip_serializing_if = "is_default")]
    pub dropout: bool,
    /// Whether modules for multi-token prediction are trained.
    #[serde(skip_serializing_if = "is_default")]
    pub multi_token_prediction: bool,
    /// Whether selective recompute keeps the output of every other product.
    #[serde(skip_serializing_if = "is_default")]
    pub keeps_every_other_linear: bool,
}

/// A cluster preset, with the nodes and links of the run in place of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCluster {
    /// Name of the preset.
    pub preset: String,
    /// GPUs of a node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus_per_node: Option<u32>,
    /// Whether the GPUs of a node are connected by switches where those of the preset have direct links.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_switches: bool,
    /// Bandwidth of a GPU within its node, in one direction.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_bytes_per_second: Option<f64>,
    /// Bandwidth of a GPU between nodes, in one direction.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network_bytes_per_second: Option<f64>,
}

/// Numbers that follow from model, batch and step time: a run that states others contradicts itself.
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

/// Memory of a GPU that was measured.
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
    /// Memory that the allocator has given out.
    #[default]
    Allocated,
    /// Memory that the allocator has taken from the device.
    Reserved,
    /// All that the process has on the device.
    Process,
}

impl MemoryKind {
    /// The part of a prediction that is counted so.
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

/// Pipeline rank of which a source states the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryOf {
    /// The rank that has most.
    #[default]
    FullestRank,
    /// The first.
    FirstRank,
    /// The last.
    LastRank,
    /// The first or the last, whichever has more.
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
