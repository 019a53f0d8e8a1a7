//! Plans: the result of a search, which the executor runs.
//!
//! `plan.json` is self-contained, so that it can be explained, drawn and run without the files it was made from.
//! Unknown fields are rejected by name.

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Precision};
use crate::documents::Documents;
use crate::expert_load::ExpertLoad;
use crate::framework::{Abilities, Feature, Features, Framework, JobFacts, ReplicationAbility};
use crate::graph::Adapters;
use crate::layout::LayoutSpec;
pub use crate::optimizer::Optimizer;
use crate::replication::{DataParallelMethod, GradientCompression, Replication};
use crate::units::{Bytes, Seconds};

/// The version of the format that this program writes and reads.
pub const PLAN_VERSION: u32 = 7;

/// A layout with its stages, its prediction, and all inputs of the prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`] at the time of writing.
    pub version: u32,
    /// The model.
    pub model: PlannedModel,
    /// Training settings apart from the layout.
    pub training: Training,
    /// Documents that sequences are made of; absent if each sequence is one document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Documents>,
    /// Spread of tokens over experts by routers.
    #[serde(default, skip_serializing_if = "ExpertLoad::is_balanced")]
    pub expert_load: ExpertLoad,
    /// The GPUs and links.
    pub cluster: Cluster,
    /// The framework that runs the step.
    pub framework: Framework,
    /// Number of GPUs.
    pub num_gpus: u32,
    /// Names of the nodes in the order of their ranks; empty where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Memory to be left free on each GPU, in bytes.
    pub headroom_bytes: Bytes,
    /// Distribution of the step over the GPUs.
    pub layout: LayoutSpec,
    /// The blocks of each stage, in the order of the model.
    pub stages: Vec<PlannedStage>,
    /// Pipeline ranks with their GPUs, where these are of several kinds; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<PlannedRank>,
    /// True if the stages were given by hand rather than balanced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stages_by_hand: bool,
    /// Predicted time and memory.
    pub prediction: Prediction,
    /// The next best layouts.
    pub runners_up: Vec<RunnerUp>,
    /// Origin of the plan.
    pub provenance: Provenance,
}

/// The model of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedModel {
    /// Name of the model.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
    /// Contents of the model file.
    pub description: serde_json::Value,
    /// Number of parameters, including those of adapters.
    pub num_parameters: u64,
    /// True if multi-token prediction modules are trained too.
    pub multi_token_prediction: bool,
    /// True if dropout is applied where the model's description has it. Native graphs always apply theirs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropout: bool,
    /// Adapters that are trained instead of the model's own parameters, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<Adapters>,
}

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStage {
    /// Index of the stage, in the order of the model.
    pub stage: u32,
    /// The pipeline rank that has the stage, as placed by the layout's schedule; for a stage on two ranks
    /// (`dualpipe`), the one that runs it for even micro-batches.
    pub pipeline_rank: u32,
    /// The first of its blocks, counting from the embedding.
    pub first_block: u32,
    /// Number of blocks.
    pub num_blocks: u32,
}

impl Plan {
    /// Number of replicas in each group of GPUs, in the order of replicas; empty where replicas are not distinguished.
    pub fn replicas_by_group(&self) -> Vec<u32> {
        let of_replicas = self.ranks.iter().filter(|rank| rank.pipeline_rank == 0);
        let of_replicas: Vec<&PlannedRank> =
            of_replicas.filter(|rank| rank.replica.is_some()).collect();
        of_replicas.chunk_by(|a, b| a.group == b.group).map(|all| all.len() as u32).collect()
    }
}

/// A pipeline rank, in a plan on GPUs of several kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRank {
    /// Index of the pipeline rank.
    pub pipeline_rank: u32,
    /// The replica that the rank belongs to, where replicas lie in groups; otherwise the rank stands for all replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u32>,
    /// Name of the group of nodes that its GPUs are in.
    #[serde(deserialize_with = "crate::text::name")]
    pub group: String,
    /// Number of layers in its stages, not counting embedding and head.
    pub layers: u32,
    /// Share of the batch that passes through it.
    pub share_of_batch: f64,
}

/// Predicted time and memory of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// Time of a step, in seconds.
    pub step_time_seconds: f64,
    /// Tokens per second and GPU.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOPs over the peak FLOPs of the GPUs by their data sheet.
    pub mfu: f64,
    /// Memory of the GPU that needs the most, in bytes.
    pub peak_memory_bytes: Bytes,
    /// Step time by cause.
    pub breakdown: Breakdown,
    /// Peak memory by purpose.
    pub memory: MemoryUse,
}

/// A layout that ranks below the plan's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerUp {
    /// The layout.
    pub layout: LayoutSpec,
    /// Blocks of each stage, in the order of the model.
    pub stage_blocks: Vec<u32>,
    /// Time of a step, in seconds.
    pub step_time_seconds: f64,
    /// Memory of the GPU that needs the most, in bytes.
    pub peak_memory_bytes: Bytes,
    /// Step time by cause.
    pub breakdown: Breakdown,
}

/// Origin of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of the program.
    pub planner_version: String,
    /// Command that reproduces the plan.
    pub command: String,
    /// SHA-256 of the model file.
    pub model_sha256: String,
    /// SHA-256 of the cluster, as contained in the plan.
    pub cluster_sha256: String,
}

/// Training settings, apart from the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Tokens in a sequence.
    pub sequence_length: u64,
    /// Sequences in a step.
    pub global_batch_size: u64,
    /// Precision of linear layers.
    pub precision: Precision,
    /// Optimizer that updates the parameters.
    pub optimizer: Optimizer,
    /// True if gradients are accumulated in fp32, as Megatron-LM does.
    pub fp32_gradients: bool,
    /// True if the optimizer's moments are stored in bf16 rather than fp32 (DeepSeek-AI 2024, *DeepSeek-V3*, arXiv
    /// 2412.19437, section 3.3.3).
    #[serde(default)]
    pub bf16_moments: bool,
    /// True if updates are applied to the 16-bit weights directly, without master weights in fp32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_master_weights: bool,
    /// Method by which replicas keep their weights in agreement.
    #[serde(default)]
    pub data_parallel_method: DataParallelMethod,
    /// Compression of the gradients that replicas send, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_compression: Option<GradientCompression>,
}

impl Training {
    /// Method and gradient compression of data parallelism.
    pub fn replication(&self) -> Replication {
        Replication { method: self.data_parallel_method, compression: self.gradient_compression }
    }

    /// The number format of the optimizer's moments.
    pub const fn moments(&self) -> Precision {
        if self.bf16_moments { Precision::Bf16 } else { Precision::Fp32 }
    }

    /// Descriptions of the settings that a framework with these abilities cannot run; empty where it can run all.
    pub fn lacked_by(&self, abilities: &Abilities) -> Vec<String> {
        let mut lacks = Vec::new();
        if !abilities.precisions.contains(&self.precision) {
            lacks.push(format!("linear layers in {}", self.precision));
        }
        let moments = self.moments();
        if !abilities.optimizers.contains(&self.optimizer) {
            lacks.push(format!("optimizer {}", self.optimizer));
        }
        if self.optimizer.has_full_moments() && !abilities.moments.contains(&moments) {
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

    /// The settings with the framework's gradient format for such a job, where the settings leave it open: fp32 if the
    /// framework has no other.
    #[must_use]
    pub fn with_gradients_of(self, abilities: &Abilities, facts: JobFacts) -> Self {
        let in_16 = self.precision.activation_bytes() == 2;
        let fp32_gradients =
            self.fp32_gradients || in_16 && abilities.has_fp32_gradients_alone(facts.features);
        Self { fp32_gradients, ..self }
    }

    /// Abilities extended by those that these settings need.
    #[must_use]
    pub fn granted(&self, mut abilities: Abilities) -> Abilities {
        if !abilities.precisions.contains(&self.precision) {
            abilities.precisions.push(self.precision);
        }
        if !abilities.optimizers.contains(&self.optimizer) {
            abilities.optimizers.push(self.optimizer);
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

    /// Bytes of an element of an activation.
    pub fn compute_bytes(&self) -> u64 {
        self.precision.activation_bytes()
    }
}

impl JobFacts {
    /// The facts of the job, extended by those of its training settings.
    #[must_use]
    pub fn with_training(self, training: &Training) -> Self {
        let precision = training.precision;
        let is_16_bit = precision.activation_bytes() == 2;
        let has_moments = training.optimizer.has_full_moments();
        let of_training = Features::which([
            (Feature::Fp32, precision == Precision::Fp32),
            (Feature::Fp16, precision == Precision::Fp16),
            (Feature::Fp8, precision == Precision::Fp8),
            (Feature::Gradients32, is_16_bit && training.fp32_gradients),
            (Feature::Gradients16, is_16_bit && !training.fp32_gradients),
            (Feature::NoMasterWeights, is_16_bit && training.no_master_weights),
            (Feature::MasterWeights, is_16_bit && !training.no_master_weights),
            (Feature::Muon, training.optimizer == Optimizer::Muon),
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

/// Step time by cause, as the mean over all GPUs. The parts add up to the step time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breakdown {
    /// Time of forward and backward kernels.
    pub compute_seconds: f64,
    /// Time of kernels and collectives that recompute runs again.
    pub recompute_seconds: f64,
    /// Time spent waiting for the host to launch the next kernel.
    #[serde(default)]
    pub host_seconds: f64,
    /// Exposed time of tensor-parallel collectives.
    pub tensor_parallel_seconds: f64,
    /// Exposed time of context-parallel exchanges.
    pub context_parallel_seconds: f64,
    /// Exposed time of expert-parallel exchanges.
    pub expert_parallel_seconds: f64,
    /// Exposed time of messages between pipeline stages.
    pub pipeline_messages_seconds: f64,
    /// Idle time spent waiting for other pipeline ranks.
    pub pipeline_bubble_seconds: f64,
    /// Exposed time of gradient and parameter collectives of data parallelism.
    pub data_parallel_seconds: f64,
    /// Exposed time of copies between the device and its host's memory.
    #[serde(default)]
    pub offload_seconds: f64,
    /// Time of gradient norm and update.
    pub optimizer_seconds: f64,
}

impl Breakdown {
    /// Sum of all parts: the time of a step, in seconds.
    pub fn total(&self) -> f64 {
        self.parts().into_iter().map(|(_, seconds)| seconds).sum()
    }

    /// The breakdown of a rank whose gradients wait for slower replicas until the end of a longer step.
    #[must_use]
    pub fn waiting_until(self, step_time: Seconds) -> Self {
        let wait = (step_time.get() - self.total()).max(0.0);
        Self { data_parallel_seconds: self.data_parallel_seconds + wait, ..self }
    }

    /// The mean of several breakdowns, each weighted by a number of ranks.
    pub fn mean(all: &[(Self, u32)]) -> Self {
        let ranks: f64 = all.iter().map(|(_, ranks)| f64::from(*ranks)).sum();
        let mean = |part: fn(&Self) -> f64| {
            let sum: f64 = all.iter().map(|(it, ranks)| part(it) * f64::from(*ranks)).sum();
            sum / ranks.max(1.0)
        };
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

    /// Each part with its name and its excess over that part of `other`, in seconds.
    pub fn parts_above(&self, other: &Self) -> impl Iterator<Item = (&'static str, f64)> {
        let pairs = self.parts().into_iter().zip(other.parts());
        pairs.map(|((name, own), (_, other))| (name, own - other))
    }

    /// Each part with its name, in seconds.
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

/// Memory by purpose, on the rank that needs the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryUse {
    /// Weights that kernels read.
    pub parameters_bytes: Bytes,
    /// Gradients.
    pub gradients_bytes: Bytes,
    /// Master weights and moments.
    pub optimizer_bytes: Bytes,
    /// Parameters and gradients that ZeRO-3 gathers temporarily.
    pub gathered_bytes: Bytes,
    /// Activations saved from forward to backward, for the micro-batches in flight; logits included.
    pub activations_bytes: Bytes,
    /// Activations of the block that is being recomputed.
    pub recompute_bytes: Bytes,
    /// Temporary gradients of activations.
    pub workspace_bytes: Bytes,
    /// Buffers of messages between stages.
    pub buffers_bytes: Bytes,
    /// Memory that the allocator reserves beyond what is in use.
    pub allocator_bytes: Bytes,
    /// CUDA context and libraries.
    pub context_bytes: Bytes,
    /// Memory of the host for offloaded states and activations, not part of the device's.
    #[serde(default)]
    pub host_bytes: Bytes,
}

impl MemoryUse {
    /// Each part of the device's memory with its name.
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

    /// Memory that grows with the number of blocks on a rank: model states and saved activations.
    pub fn of_blocks(&self) -> Bytes {
        self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes
    }

    /// Sum of all parts on the device.
    pub fn total(&self) -> Bytes {
        self.lines().into_iter().map(|(_, bytes)| bytes).sum()
    }
}
