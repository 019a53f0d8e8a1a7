//! Frameworks that run training steps: their behaviour and their abilities.
//!
//! A framework is data, as a cluster is. Its behaviour (kernels, overlap, memory) decides the time and memory of a
//! step; its [`Abilities`] decide which layouts are proposed for it. A framework is checked before it is used: it does
//! not contradict itself.

mod abilities;
mod calibration;
mod check;
mod compile;
mod error;
mod exclusion;
mod habits;
mod job;
mod named;
mod zero;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::{Architecture, Platform};
use crate::graph::{LossGradient, LossKind};
use crate::text::json;

pub use abilities::{
    Abilities, ActivationOffload, ExpertAbilities, ExpertTensor, LossAbility, OverlapAbility,
    RecomputePolicy, ReplicationAbility, SequenceAbility, StageLayers,
};
pub use calibration::Calibration;
pub use error::FrameworkError;
pub use exclusion::{Exclusion, Feature, FeatureList, Features};
pub use habits::{
    AttentionLibrary, CausalPieces, Compile, CublasWorkspace, ExchangeBuffers, ExpertActivations,
    ExpertHabits, ExpertOutputs, Fusion, GatheredInputs, GradientAccumulation, GradientCopies,
    GradientFormat, GradientHabits, GradientSum, HostHabits, KeptInputs, KernelChoice,
    KernelHabits, Launches, Logits, LossKernels, MemoryHabits, MessageBytes, MessageOverlap,
    ParameterHabits, PipelineHabits, Projections, RecomputeEnd, ScanKernel, SelectiveRecompute,
    StageParameters, TensorGathers, TensorHabits, TensorOverlap, TransferFactors, UnalignedRows,
    UpdateBuffers, UpdatedParameters, WeightShards, WhenReduced,
};

pub use job::JobFacts;
pub use zero::{ShardGroups, ZeroAbility};

/// Name of the framework that supports everything.
pub const IDEAL: &str = "ideal";

/// A framework and a range of its versions: the kernels and behaviour that a step is predicted with, and the layouts
/// that it can run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Framework {
    /// The name that `--framework` takes, or the file's own.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
    /// Description of the framework, with its versions.
    pub description: String,
    /// Kernels of the framework.
    pub kernels: KernelHabits,
    /// Behaviour of the host.
    pub host: HostHabits,
    /// Accumulation and reduction of parameter gradients.
    pub gradients: GradientHabits,
    /// Gathering of updated parameters.
    pub parameters: ParameterHabits,
    /// Behaviour of tensor-parallel ranks.
    pub tensor_parallel: TensorHabits,
    /// Behaviour of pipeline ranks.
    pub pipeline_parallel: PipelineHabits,
    /// Division of a causal mask among context-parallel ranks.
    #[serde(default)]
    pub context_parallel: CausalPieces,
    /// Point up to which the forward of a fully recomputed layer runs again.
    #[serde(default, skip_serializing_if = "habits::is_default")]
    pub recompute_end: RecomputeEnd,
    /// Operators that selective recompute runs again.
    #[serde(default, skip_serializing_if = "habits::is_default")]
    pub selective_recompute: SelectiveRecompute,
    /// Routing of tokens to their experts.
    #[serde(default)]
    pub experts: ExpertHabits,
    /// Ratio of the time of an exchange in a step to that of the same collective alone.
    pub exchanges: TransferFactors,
    /// Memory in addition to that which a layout implies.
    pub memory: MemoryHabits,
    /// Features and layouts that it supports.
    pub abilities: Abilities,
    /// The framework whose measured steps this one is compared with, if not its own: the one that its constants come
    /// from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_as: Option<String>,
    /// Frameworks that this one may resemble, where it is not known which runs: its own values lie among theirs, and
    /// layouts are chosen to lose least over all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stands_for: Vec<String>,
    /// Hardware that it runs on; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_on: Vec<Platform>,
    /// Evidence about its constants from steps measured on a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Source of each value, by the value's path in this file or in the file that contains it.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

impl Framework {
    /// Reads and checks a framework's JSON.
    ///
    /// # Errors
    ///
    /// On broken JSON, unknown or missing fields, abilities that contradict each other, and values that no framework
    /// can have.
    pub fn from_json(text: &str) -> Result<Self, FrameworkError> {
        let framework: Self = json::read(text).map_err(FrameworkError::Json)?;
        framework.check()?;
        Ok(framework)
    }

    /// Returns whether the framework runs on hardware of this platform.
    pub fn runs_on(&self, platform: Platform) -> bool {
        self.runs_on.is_empty() || self.runs_on.contains(&platform)
    }

    /// Checks a framework that was not read from JSON.
    ///
    /// # Errors
    ///
    /// As for [`Self::from_json`].
    pub fn check(&self) -> Result<(), FrameworkError> {
        if self.name.trim().is_empty() {
            return Err(FrameworkError::Nameless);
        }
        self.check_numbers()?;
        self.abilities.check()
    }

    /// The framework with the same behaviour and all abilities.
    #[must_use]
    pub fn ideal(self) -> Self {
        let description = format!(
            "No framework: every layout that the planner knows, with the kernels and habits of {}",
            self.name
        );
        let measured_as = Some(self.measured_name().to_owned());
        let (name, abilities) = (IDEAL.to_owned(), Abilities::all());
        Self { name, description, abilities, measured_as, runs_on: Vec::new(), ..self }
    }

    /// Name of the framework whose measured steps this one's are compared with.
    pub fn measured_name(&self) -> &str {
        self.measured_as.as_deref().unwrap_or(&self.name)
    }

    /// True for the ideal framework, which has all abilities.
    pub fn is_ideal(&self) -> bool {
        self.name == IDEAL
    }

    /// Kind of the loss, which depends on whether blocks are compiled.
    pub fn loss(&self) -> LossKind {
        let LossKernels { gradient, chunks, .. } = self.kernels.loss;
        let gradient = match (gradient, self.kernels.fusion) {
            (LossGradient::Compiled, Fusion::Compiled) => LossGradient::Fused,
            (LossGradient::Compiled, _) => LossGradient::LossParallel,
            (gradient, _) => gradient,
        };
        LossKind { gradient, chunks }
    }

    /// The attention that the framework calls on a GPU of this architecture.
    pub fn attention_on(&self, architecture: Architecture) -> AttentionLibrary {
        let of_gpu = self.kernels.attention_by_architecture.get(&architecture);
        of_gpu.copied().unwrap_or(self.kernels.attention)
    }

    /// The JSON Schema of a framework's file.
    #[cfg(feature = "schema")]
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}
