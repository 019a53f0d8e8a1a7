//! Plans: what a search leaves behind, and the executor runs.
//!
//! `plan.json` holds everything that it depends on, so that it can be explained, drawn and run without
//! the files that it came from. What it does not know it rejects by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Precision};
use crate::framework::{Abilities, Feature, Features, Framework, JobFacts, ReplicationAbility};
use crate::graph::Adapters;
use crate::layout::LayoutSpec;
use crate::replication::{DataParallelMethod, GradientCompression, Replication};
use crate::units::Bytes;

/// The version of the format that this program writes and reads.
pub const PLAN_VERSION: u32 = 6;

/// A layout with its stages, its prediction, and all that they depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`] at the time of writing.
    pub version: u32,
    /// The model.
    pub model: PlannedModel,
    /// How it is trained.
    pub training: Training,
    /// The GPUs and links.
    pub cluster: Cluster,
    /// What runs the step.
    pub framework: Framework,
    /// How many GPUs.
    pub num_gpus: u32,
    /// What of a GPU's memory was to stay free.
    pub headroom_bytes: Bytes,
    /// How the step is spread over them.
    pub layout: LayoutSpec,
    /// The blocks of each stage, in the order of the model.
    pub stages: Vec<PlannedStage>,
    /// Whether the stages were given by hand, rather than balanced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stages_by_hand: bool,
    /// What is expected of it.
    pub prediction: Prediction,
    /// The next best layouts.
    pub runners_up: Vec<RunnerUp>,
    /// Where it came from.
    pub provenance: Provenance,
}

/// The model of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedModel {
    /// What it is called.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
    /// The model file, whole.
    pub description: serde_json::Value,
    /// Its parameters, those of adapters included.
    pub num_parameters: u64,
    /// Whether its multi-token prediction modules are trained too.
    pub multi_token_prediction: bool,
    /// Whether dropout is applied where the model's description has it. That of a native graph always is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropout: bool,
    /// The adapters that are trained instead of its own parameters, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Adapters>,
}

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedStage {
    /// Which, in the order of the model.
    pub stage: u32,
    /// The pipeline rank that has it, as the layout's schedule places it; where it is on two ranks
    /// (`dualpipe`), the one that runs it for even micro-batches.
    pub pipeline_rank: u32,
    /// The first of its blocks, counting from the embedding.
    pub first_block: u32,
    /// How many it has.
    pub num_blocks: u32,
}

/// What a plan is expected to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// Time of a step.
    pub step_time_seconds: f64,
    /// Tokens a second, over the number of GPUs.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOPs over what the GPUs could do by their data sheet.
    pub mfu: f64,
    /// Memory of the GPU that needs most.
    pub peak_memory_bytes: Bytes,
    /// Where the time goes.
    pub breakdown: Breakdown,
    /// Where the memory goes.
    pub memory: MemoryUse,
}

/// A layout that is not as good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerUp {
    /// The layout.
    pub layout: LayoutSpec,
    /// Blocks of each stage, in the order of the model.
    pub stage_blocks: Vec<u32>,
    /// Time of a step.
    pub step_time_seconds: f64,
    /// Memory of the GPU that needs most.
    pub peak_memory_bytes: Bytes,
    /// Where the time goes.
    pub breakdown: Breakdown,
}

/// Where a plan came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The version of the program.
    pub planner_version: String,
    /// The command that makes it again.
    pub command: String,
    /// SHA-256 of the model file.
    pub model_sha256: String,
    /// SHA-256 of the cluster, as the plan has it.
    pub cluster_sha256: String,
}

/// What updates the parameters.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Adam with decoupled weight decay: two moments.
    #[default]
    AdamW,
    /// Gradient descent with momentum: one.
    Momentum,
    /// Plain gradient descent: none.
    Sgd,
}

impl Optimizer {
    /// Moments for each parameter.
    pub const fn num_moments(self) -> u64 {
        match self {
            Self::AdamW => 2,
            Self::Momentum => 1,
            Self::Sgd => 0,
        }
    }
}

/// How the model is trained, apart from its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Precision of linear layers.
    pub precision: Precision,
    /// What updates the parameters.
    pub optimizer: Optimizer,
    /// Whether gradients are accumulated in fp32, as Megatron-LM does.
    pub fp32_gradients: bool,
    /// Whether the optimizer's moments are kept in bf16 rather than fp32 (DeepSeek-AI 2024, *DeepSeek-V3*,
    /// arXiv 2412.19437, section 3.3.3).
    #[serde(default)]
    pub bf16_moments: bool,
    /// Whether updates are applied to the 16-bit weights themselves, of which no copy in fp32 is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_master_weights: bool,
    /// How replicas come to have weights in common.
    #[serde(default)]
    pub data_parallel_method: DataParallelMethod,
    /// What replicas send in the place of their gradients, if that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_compression: Option<GradientCompression>,
}

impl Training {
    /// How replicas come to their weights.
    pub fn replication(&self) -> Replication {
        Replication { method: self.data_parallel_method, compression: self.gradient_compression }
    }

    /// The number format of the optimizer's moments.
    pub const fn moments(&self) -> Precision {
        if self.bf16_moments { Precision::Bf16 } else { Precision::Fp32 }
    }

    /// What a framework with such abilities cannot run of it, in words; nothing where it can run all.
    pub fn lacked_by(&self, abilities: &Abilities) -> Vec<String> {
        let mut lacks = Vec::new();
        if !abilities.precisions.contains(&self.precision) {
            lacks.push(format!("linear layers in {}", self.precision));
        }
        let moments = self.moments();
        if self.optimizer.num_moments() > 0 && !abilities.moments.contains(&moments) {
            lacks.push(format!("optimizer moments in {moments}"));
        }
        if self.no_master_weights && !abilities.no_master_weights {
            lacks.push("updates without master weights in fp32".to_owned());
        }
        let Replication { method, compression } = self.replication();
        if abilities.replication == ReplicationAbility::AllReduce {
            if method != DataParallelMethod::AllReduce {
                lacks.push(format!("replicas that agree by {method}"));
            }
            lacks.extend(compression.map(|it| format!("gradients compressed by {it}")));
        }
        lacks
    }

    /// The same as a framework with such abilities trains such a job where the format of gradients is left open: in fp32 where it
    /// has no other.
    #[must_use]
    pub fn with_gradients_of(self, abilities: &Abilities, facts: JobFacts) -> Self {
        let in_16 = self.precision.activation_bytes() == 2;
        let fp32_gradients =
            self.fp32_gradients || in_16 && abilities.has_fp32_gradients_alone(facts.features);
        Self { fp32_gradients, ..self }
    }

    /// Abilities with what it takes of them added.
    #[must_use]
    pub fn granted(&self, mut abilities: Abilities) -> Abilities {
        if !abilities.precisions.contains(&self.precision) {
            abilities.precisions.push(self.precision);
        }
        if !abilities.moments.contains(&self.moments()) {
            abilities.moments.push(self.moments());
        }
        abilities.no_master_weights |= self.no_master_weights;
        if self.replication() != Replication::default() {
            abilities.replication = ReplicationAbility::Any;
        }
        abilities
    }

    /// Bytes of an activation.
    pub fn compute_bytes(&self) -> u64 {
        self.precision.activation_bytes()
    }
}

impl JobFacts {
    /// The same, trained so.
    #[must_use]
    pub fn with_training(self, training: &Training) -> Self {
        let precision = training.precision;
        let is_16_bit = precision.activation_bytes() == 2;
        let has_moments = training.optimizer.num_moments() > 0;
        let of_training = Features::which([
            (Feature::Fp32, precision == Precision::Fp32),
            (Feature::Fp16, precision == Precision::Fp16),
            (Feature::Fp8, precision == Precision::Fp8),
            (Feature::Gradients32, is_16_bit && training.fp32_gradients),
            (Feature::Gradients16, is_16_bit && !training.fp32_gradients),
            (Feature::NoMasterWeights, is_16_bit && training.no_master_weights),
            (Feature::MasterWeights, is_16_bit && !training.no_master_weights),
            (Feature::Bf16Moments, has_moments && training.bf16_moments),
            (Feature::Fp32Moments, has_moments && !training.bf16_moments),
        ]);
        Self {
            sequence_length: Some(training.sequence_length),
            global_batch_size: Some(training.global_batch_size),
            ..self.with(of_training)
        }
    }
}

/// Where a step's time goes, in the mean over all GPUs. The parts add up to the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breakdown {
    /// Kernels of forward and backward.
    pub compute_seconds: f64,
    /// Kernels and collectives that recompute runs again.
    pub recompute_seconds: f64,
    /// Waiting for the host to launch the next kernel.
    #[serde(default)]
    pub host_seconds: f64,
    /// Tensor-parallel collectives that wait.
    pub tensor_parallel_seconds: f64,
    /// Context-parallel exchanges that wait.
    pub context_parallel_seconds: f64,
    /// Expert-parallel exchanges that wait.
    pub expert_parallel_seconds: f64,
    /// Messages between pipeline stages that wait.
    pub pipeline_messages_seconds: f64,
    /// Waiting for other pipeline ranks: idle.
    pub pipeline_bubble_seconds: f64,
    /// Gradients and parameters of data parallelism, beyond what computation hides.
    pub data_parallel_seconds: f64,
    /// Copies between the device and its host's memory, beyond what computation hides.
    #[serde(default)]
    pub offload_seconds: f64,
    /// Gradient norm and update.
    pub optimizer_seconds: f64,
}

impl Breakdown {
    /// All of it: the time of a step.
    pub fn total(&self) -> f64 {
        self.parts().into_iter().map(|(_, seconds)| seconds).sum()
    }

    /// The mean of several.
    pub fn mean(all: &[Self]) -> Self {
        let mean =
            |part: fn(&Self) -> f64| all.iter().map(part).sum::<f64>() / all.len().max(1) as f64;
        Self {
            compute_seconds: mean(|it| it.compute_seconds),
            recompute_seconds: mean(|it| it.recompute_seconds),
            host_seconds: mean(|it| it.host_seconds),
            tensor_parallel_seconds: mean(|it| it.tensor_parallel_seconds),
            context_parallel_seconds: mean(|it| it.context_parallel_seconds),
            expert_parallel_seconds: mean(|it| it.expert_parallel_seconds),
            pipeline_messages_seconds: mean(|it| it.pipeline_messages_seconds),
            pipeline_bubble_seconds: mean(|it| it.pipeline_bubble_seconds),
            data_parallel_seconds: mean(|it| it.data_parallel_seconds),
            offload_seconds: mean(|it| it.offload_seconds),
            optimizer_seconds: mean(|it| it.optimizer_seconds),
        }
    }

    /// Each part with its name.
    pub fn parts(&self) -> [(&'static str, f64); 11] {
        [
            ("compute", self.compute_seconds),
            ("recompute", self.recompute_seconds),
            ("waiting for the host", self.host_seconds),
            ("tensor-parallel collectives, exposed", self.tensor_parallel_seconds),
            ("context parallelism, exposed", self.context_parallel_seconds),
            ("expert-parallel all-to-all", self.expert_parallel_seconds),
            ("pipeline messages", self.pipeline_messages_seconds),
            ("pipeline bubble", self.pipeline_bubble_seconds),
            ("data parallelism, exposed", self.data_parallel_seconds),
            ("copies to and from the host, exposed", self.offload_seconds),
            ("optimizer", self.optimizer_seconds),
        ]
    }
}

/// Where memory goes, on the rank that needs most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryUse {
    /// Weights that kernels read.
    pub parameters_bytes: Bytes,
    /// Gradients.
    pub gradients_bytes: Bytes,
    /// Master weights and moments.
    pub optimizer_bytes: Bytes,
    /// Parameters and gradients that ZeRO-3 gathers for a while.
    pub gathered_bytes: Bytes,
    /// Kept from forward to backward, for the micro-batches in flight; logits included.
    pub activations_bytes: Bytes,
    /// Of the block that is computed again.
    pub recompute_bytes: Bytes,
    /// Gradients of activations in passing.
    pub workspace_bytes: Bytes,
    /// Messages between stages.
    pub buffers_bytes: Bytes,
    /// What the allocator reserves beyond.
    pub allocator_bytes: Bytes,
    /// CUDA and its libraries.
    pub context_bytes: Bytes,
    /// What is in the host's memory instead, which is none of the device's.
    #[serde(default)]
    pub host_bytes: Bytes,
}

impl MemoryUse {
    /// Each line of the device's memory with its name.
    pub fn lines(&self) -> [(&'static str, Bytes); 10] {
        [
            ("parameters", self.parameters_bytes),
            ("gradients", self.gradients_bytes),
            ("optimizer state", self.optimizer_bytes),
            ("gathered parameters", self.gathered_bytes),
            ("activations", self.activations_bytes),
            ("recomputed block", self.recompute_bytes),
            ("workspace", self.workspace_bytes),
            ("message buffers", self.buffers_bytes),
            ("allocator slack", self.allocator_bytes),
            ("device context", self.context_bytes),
        ]
    }

    /// What grows with the blocks of a rank: model states and what is kept for backward.
    pub fn of_blocks(&self) -> Bytes {
        self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes
    }

    /// All that is on the device.
    pub fn total(&self) -> Bytes {
        self.lines().into_iter().map(|(_, bytes)| bytes).sum()
    }
}
