//! Layouts: how a step is spread over GPUs.
//!
//! A [`Layout`] in hand is valid: it was checked against model, batch and number of GPUs when it was
//! made. The order of ranks is written in one place, [`Mesh::stride`].

mod error;
mod limits;
mod partial;

use std::fmt;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use error::{LayoutError, largest_divisor};
pub use limits::{Limits, check_expert_shards};
pub use partial::{ParseLayoutError, PartialLayout};

use crate::graph::Recompute;
use crate::schedule::ScheduleKind;

/// What data-parallel ranks share of the model states (Rajbhandari et al. 2020, arXiv 1910.02054).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZeroStage {
    /// Nothing: every rank holds all.
    #[default]
    None,
    /// Optimizer state.
    OptimizerState,
    /// Optimizer state and gradients.
    Gradients,
    /// Optimizer state, gradients and parameters (FSDP).
    Parameters,
}

impl ZeroStage {
    /// All stages, 0 to 3.
    pub const ALL: [Self; 4] =
        [Self::None, Self::OptimizerState, Self::Gradients, Self::Parameters];

    /// Its number, 0 to 3.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl TryFrom<u8> for ZeroStage {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .ok_or_else(|| format!("`zero_stage` is 0, 1, 2 or 3, not {number}"))
    }
}

impl Serialize for ZeroStage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

impl<'de> Deserialize<'de> for ZeroStage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(u8::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ZeroStage {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ZeroStage".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": 3 })
    }
}

/// A layout as it is written down; not yet known to be valid.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct LayoutSpec {
    /// Ranks that share heads, inner features and vocabulary.
    pub tensor_parallel: u32,
    /// Whether those ranks share the sequence between the sharded products.
    pub sequence_parallel: bool,
    /// Ranks that share each sequence.
    pub context_parallel: u32,
    /// Ranks, within context and data parallelism, that share the experts; within tensor, context and
    /// data parallelism if experts are whole.
    pub expert_parallel: u32,
    /// Whether tensor parallelism leaves each expert whole, so that its ranks too share the experts,
    /// each for its own part of the sequence (Liu et al. 2025, *MoE Parallel Folding*, arXiv
    /// 2504.14960). Otherwise it cuts each expert, as it cuts all else.
    #[serde(default)]
    pub whole_experts: bool,
    /// Ranks that share the layers.
    pub pipeline_parallel: u32,
    /// Chunks of layers on each pipeline rank; of each direction where the schedule has two.
    pub virtual_stages: u32,
    /// Replicas, counting shards.
    pub data_parallel: u32,
    /// Ranks over which ZeRO shards, within context and data parallelism; fewer than all of them is
    /// hybrid sharding (HSDP).
    pub zero_shard: u32,
    /// What those ranks share.
    pub zero_stage: ZeroStage,
    /// Sequences of a replica in a micro-batch.
    pub micro_batch_size: u32,
    /// Micro-batches of a replica in a step.
    pub num_micro_batches: u32,
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// The order of micro-batches in the pipeline.
    pub schedule: ScheduleKind,
}

impl LayoutSpec {
    /// How far apart the ranks of its groups lie.
    pub fn mesh(&self) -> Mesh {
        Mesh {
            tensor_parallel: self.tensor_parallel,
            expert_tensor_parallel: self.expert_tensor_parallel(),
            context_parallel: self.context_parallel,
            data_parallel: self.data_parallel,
        }
    }

    /// Ranks that share each expert's inner features.
    pub fn expert_tensor_parallel(&self) -> u32 {
        if self.whole_experts { 1 } else { self.tensor_parallel }
    }

    /// Ranks of a stage: those among which parameters are replicated or shared.
    pub fn ranks_per_stage(&self) -> u32 {
        self.tensor_parallel * self.context_parallel * self.data_parallel
    }

    /// Ranks of a stage that hold the same experts.
    pub fn expert_replicas(&self) -> u32 {
        self.ranks_per_stage() / self.mesh().expert_ranks(self.expert_parallel)
    }

    /// Ranks over which ZeRO shards the states of an expert: those with the same experts among the ones
    /// that share a copy of all states.
    pub fn expert_shards(&self) -> u32 {
        let with_copy = self.zero_shard * self.tensor_parallel;
        (with_copy / self.mesh().expert_ranks(self.expert_parallel)).max(1)
    }
}

impl fmt::Display for LayoutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = if self.sequence_parallel { "-sp" } else { "" };
        write!(f, "tp{}{sequence}", self.tensor_parallel)?;
        for (name, degree, is_said) in [
            ("cp", self.context_parallel, self.context_parallel > 1),
            ("ep", self.expert_parallel, self.expert_parallel > 1),
            ("etp", self.expert_tensor_parallel(), self.whole_experts),
            ("pp", self.pipeline_parallel, true),
            ("vpp", self.virtual_stages, self.virtual_stages > 1),
        ] {
            if is_said {
                write!(f, "-{name}{degree}")?;
            }
        }
        write!(f, "-dp{}", self.data_parallel)
    }
}

/// An axis along which ranks form groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshAxis {
    /// Tensor parallelism.
    Tensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism: within context and data, or of whole experts within tensor, context and data.
    Expert,
    /// Context and data parallelism together: who reduces gradients.
    ContextData,
    /// Pipeline parallelism.
    Pipeline,
}

/// Degrees that decide how far apart the ranks of a group lie: the order of ranks, which is tensor,
/// context, data, pipeline, fastest first. Experts are shared by neighbours among the ranks of a stage, or
/// where tensor parallelism cuts them, by those with the same place along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Tensor-parallel degree.
    pub tensor_parallel: u32,
    /// Ranks that share each expert.
    pub expert_tensor_parallel: u32,
    /// Context-parallel degree.
    pub context_parallel: u32,
    /// Data-parallel degree.
    pub data_parallel: u32,
}

impl Mesh {
    /// Ranks between two neighbours along an axis.
    pub fn stride(&self, axis: MeshAxis) -> u32 {
        match axis {
            MeshAxis::Tensor => 1,
            MeshAxis::Expert => self.expert_tensor_parallel,
            MeshAxis::Context | MeshAxis::ContextData => self.tensor_parallel,
            MeshAxis::Pipeline => self.tensor_parallel * self.context_parallel * self.data_parallel,
        }
    }

    /// Neighbouring ranks that have every expert between them: how far apart two ranks with the same
    /// experts lie.
    pub fn expert_ranks(&self, expert_parallel: u32) -> u32 {
        expert_parallel * self.expert_tensor_parallel
    }
}

/// A layout that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout(LayoutSpec);

impl Deref for Layout {
    type Target = LayoutSpec;

    fn deref(&self) -> &LayoutSpec {
        &self.0
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Layout {
    /// Checks `spec` against model, GPUs and batch.
    ///
    /// # Errors
    ///
    /// The first constraint that is broken, with the numbers.
    pub fn new(spec: LayoutSpec, limits: &Limits) -> Result<Self, LayoutError> {
        limits.check(&spec)?;
        Ok(Self(spec))
    }

    /// Number of GPUs.
    pub fn num_gpus(&self) -> u32 {
        self.tensor_parallel * self.context_parallel * self.pipeline_parallel * self.data_parallel
    }

    /// Chunks of layers on all pipeline ranks together. Which rank has which,
    /// [`ScheduleKind::placement`] says.
    pub fn num_stages(&self) -> u32 {
        self.pipeline_parallel * self.virtual_stages
    }
}
