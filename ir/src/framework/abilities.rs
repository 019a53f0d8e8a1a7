//! Abilities of a framework, which decide the layouts that it runs.

use serde::{Deserialize, Serialize};

use super::Compile;
use super::FrameworkError;
use super::exclusion::{Exclusion, Feature, Features};
use super::zero::{ShardGroups, ZeroAbility};
use crate::cluster::Precision;
use crate::graph::{
    ContextParallelKind, CudaGraphs, ExpertOverlap, OffloadModule, OffloadModules, Recompute,
    RecomputeModule, TokenDispatcher,
};
use crate::layout::{Offload, OffloadedActivations, ZeroStage};
use crate::optimizer::Optimizer;
use crate::schedule::ScheduleKind;

/// Features and layouts that a framework supports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a yes or no of its own in a file")]
pub struct Abilities {
    /// Pipeline schedules; empty where pipelines are not supported.
    pub schedules: Vec<ScheduleKind>,
    /// Whether any other schedule is supported too, from PyTorch's CSV.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_schedules: bool,
    /// Distribution of layers over the stages of a pipeline.
    pub stage_layers: StageLayers,
    /// Whether the ranks of a pipeline may have GPUs of several kinds, each rank with its planned number of layers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlike_gpus: bool,
    /// Whether replicas may have unequal shares of a batch, each with its planned number of micro-batches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uneven_replicas: bool,
    /// Model states that can be sharded over replicas.
    pub zero: Vec<ZeroAbility>,
    /// Combinations of features that are not supported, though each feature by itself is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
    /// Whether a tensor-parallel rank may hold a part of the sequence between products.
    pub sequence_parallel: SequenceAbility,
    /// Kinds of context parallelism.
    pub context_parallel: Vec<ContextParallelKind>,
    /// Support for mixtures of experts; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertAbilities>,
    /// Recompute policies that it runs.
    pub recompute: Vec<RecomputePolicy>,
    /// Modules that can be recomputed individually.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recompute_modules: Vec<RecomputeModule>,
    /// Number formats of linear layers.
    pub precisions: Vec<Precision>,
    /// Number formats of the optimizer's moments.
    pub moments: Vec<Precision>,
    /// Whether 16-bit weights can be updated without a copy in fp32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_master_weights: bool,
    /// Combinations of states and activations that can be offloaded, as in `optimizer,parameters`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offload: Vec<Offload>,
    /// Conditions on recompute, pipelines and CUDA graphs under which activations can be offloaded.
    #[serde(default)]
    pub activation_offload: ActivationOffload,
    /// Kinds of CUDA graphs, other than none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuda_graphs: Vec<CudaGraphs>,
    /// Parts of a model that can be compiled, where that is left to the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compile: Vec<Compile>,
    /// Supported optimizers.
    #[serde(default = "usual_optimizers", skip_serializing_if = "are_usual")]
    pub optimizers: Vec<Optimizer>,
    /// Ways to compute the loss that users can choose, other than from all logits at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<LossAbility>,
    /// Methods by which replicas keep their weights in agreement.
    #[serde(default)]
    pub replication: ReplicationAbility,
}

/// Optimizers of every framework that has PyTorch.
fn usual_optimizers() -> Vec<Optimizer> {
    vec![Optimizer::AdamW, Optimizer::Momentum, Optimizer::Sgd]
}

fn are_usual(optimizers: &[Optimizer]) -> bool {
    optimizers == usual_optimizers()
}

named_enum! {
    /// Losses that never hold all logits at once.
    pub enum LossAbility {
        /// In chunks of the tokens together with the head; the user chooses their number.
        Chunked = "chunked",
        /// Fused with the head: Liger's `fused_linear_cross_entropy`.
        Fused = "fused",
    }
}

/// Support of a framework for mixtures of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpertAbilities {
    /// Dispatchers of tokens to experts on other ranks; empty where every rank has all experts.
    pub dispatchers: Vec<TokenDispatcher>,
    /// Numbers of tensor-parallel ranks over which experts can be sharded.
    pub tensor: ExpertTensor,
    /// Conditions for overlap of experts' exchanges with passes of another micro-batch.
    pub overlap: OverlapAbility,
}

named_enum! {
    /// A recompute policy, without its numbers.
    pub enum RecomputePolicy {
        /// Nothing.
        None = "none",
        /// Operators that are cheap to compute relative to the bytes of their outputs.
        Selective = "selective",
        /// Everything except the input of each layer.
        Full = "full",
        /// Everything except the inputs of the first layers of each stage.
        FirstLayers = "first-layers",
    }
}

choices! {
    /// Distribution of layers over the stages of a pipeline.
    pub enum StageLayers {
        /// Any number in each stage, given to the framework as an option (Megatron-Core's
        /// `--pipeline-model-parallel-layout`, torchtitan's `module_fqns_per_model_part`).
        #[serde(alias = "even-or-listed")]
        Any,
        /// The same number in each stage.
        Even,
        /// The same number in each stage; the first ranks take one more each for the remainder (DeepSpeed's
        /// `partition_balanced`).
        MoreOnFirst,
        /// The same number in each stage; the last ranks take one more each for the remainder (`InternEvo`'s
        /// `partition_uniform`).
        MoreOnLast,
        /// By the framework, which fills one stage after the other by the cost of layers (nanotron's `build_model`).
        Filled,
    }

    /// Conditions on recompute, pipelines and CUDA graphs under which activations can be offloaded.
    #[derive(Default)]
    pub enum ActivationOffload {
        /// With full recompute: the inputs of all blocks.
        #[default]
        WithFullRecompute,
        /// Without recompute, pipelines and CUDA graphs: all that some layers save, at most all layers but one
        /// (Megatron-Core's `--cpu-offloading-num-layers`). Or without full recompute: what some modules of all layers
        /// save (`--fine-grained-activation-offloading`).
        OfSomeLayers,
        /// No conditions.
        Any,
    }

    /// Whether tensor-parallel ranks may hold a part of the sequence between products.
    pub enum SequenceAbility {
        /// There is no tensor parallelism.
        NoTensorParallelism,
        /// Never.
        Never,
        /// The user's choice.
        Optional,
        /// The user's choice without experts; always with experts.
        AlwaysWithExperts,
        /// Always.
        Always,
    }

    /// Numbers of tensor-parallel ranks over which experts can be sharded.
    pub enum ExpertTensor {
        /// All tensor-parallel ranks, as for other layers.
        All,
        /// Any divisor of the number of tensor-parallel ranks.
        Any,
        /// One: experts are not sharded.
        None,
        /// All where every rank has all experts; one where experts are on several ranks.
        #[serde(rename = "all-unless-spread")]
        AllUnlessExpertParallel,
    }

    /// Conditions for overlap of experts' exchanges with passes of another micro-batch.
    pub enum OverlapAbility {
        /// Never.
        Never,
        /// Without pipelines, or with several stages per rank, and if no whole layer is recomputed (Megatron-Core's
        /// `--overlap-moe-expert-parallel-comm`).
        Interleaved,
        /// Always.
        Always,
    }

    /// Methods by which replicas keep their weights in agreement.
    #[derive(Default)]
    pub enum ReplicationAbility {
        /// Gradients are reduced over all replicas, uncompressed.
        #[default]
        AllReduce,
        /// Every method that the planner knows.
        Any,
    }
}

impl ExpertTensor {
    /// The only number of ranks over which experts can be sharded; `None` if any number can be.
    pub fn only<T: From<u32>>(self, expert_parallel: u32, tensor_parallel: T) -> Option<T> {
        match self {
            Self::Any => None,
            Self::None => Some(1.into()),
            Self::AllUnlessExpertParallel if expert_parallel > 1 => Some(1.into()),
            Self::All | Self::AllUnlessExpertParallel => Some(tensor_parallel),
        }
    }
}

impl Abilities {
    /// Every ability that the planner knows.
    pub fn all() -> Self {
        let zero = |stage| ZeroAbility { stage, shards: ShardGroups::Any };
        Self {
            schedules: ScheduleKind::ALL.to_vec(),
            given_schedules: true,
            stage_layers: StageLayers::Any,
            unlike_gpus: true,
            uneven_replicas: true,
            zero: ZeroStage::ALL.map(zero).to_vec(),
            exclusions: Vec::new(),
            sequence_parallel: SequenceAbility::Optional,
            context_parallel: ContextParallelKind::ALL.to_vec(),
            experts: Some(ExpertAbilities {
                dispatchers: TokenDispatcher::ALL.to_vec(),
                tensor: ExpertTensor::Any,
                overlap: OverlapAbility::Always,
            }),
            recompute: RecomputePolicy::ALL.to_vec(),
            recompute_modules: RecomputeModule::ALL.to_vec(),
            precisions: Precision::ALL.to_vec(),
            moments: vec![Precision::Fp32, Precision::Bf16],
            no_master_weights: true,
            offload: Offload::all().collect(),
            activation_offload: ActivationOffload::Any,
            cuda_graphs: CudaGraphs::ALL.to_vec(),
            compile: Compile::ALL.to_vec(),
            optimizers: Optimizer::ALL.to_vec(),
            losses: LossAbility::ALL.to_vec(),
            replication: ReplicationAbility::Any,
        }
    }
    /// Returns whether the framework supports this tensor parallelism, with or without sequence parallelism.
    pub fn supports_tensor(
        &self,
        tensor_parallel: u32,
        sequence_parallel: bool,
        has_experts: bool,
    ) -> bool {
        if tensor_parallel == 1 {
            return true;
        }
        match self.sequence_parallel {
            SequenceAbility::NoTensorParallelism => false,
            SequenceAbility::Never => !sequence_parallel,
            SequenceAbility::Optional => true,
            SequenceAbility::AlwaysWithExperts => sequence_parallel || !has_experts,
            SequenceAbility::Always => sequence_parallel,
        }
    }

    /// Returns whether the framework supports this context parallelism.
    pub fn supports_context(&self, context_parallel: u32, kind: ContextParallelKind) -> bool {
        context_parallel == 1 || self.context_parallel.contains(&kind)
    }

    /// The default kind of context parallelism: a ring where both are supported.
    pub fn usual_context(&self) -> Option<ContextParallelKind> {
        let ring = Some(ContextParallelKind::Ring).filter(|it| self.context_parallel.contains(it));
        ring.or_else(|| self.context_parallel.first().copied())
    }

    /// Returns whether the framework supports these degrees of expert parallelism and expert tensor parallelism.
    pub fn supports_experts(
        &self,
        expert_parallel: u32,
        expert_tensor_parallel: u32,
        tensor_parallel: u32,
    ) -> bool {
        let Some(experts) = &self.experts else { return false };
        let only = experts.tensor.only(expert_parallel, tensor_parallel);
        only.is_none_or(|only| only == expert_tensor_parallel)
            && (expert_parallel == 1 || !experts.dispatchers.is_empty())
    }

    /// Returns whether the framework supports a ZeRO stage over `shards` of `replicas` ranks, of which
    /// `context_parallel` hold one sequence.
    pub fn supports_zero(
        &self,
        stage: ZeroStage,
        [shards, replicas]: [u32; 2],
        context_parallel: u32,
    ) -> bool {
        self.zero
            .iter()
            .any(|it| it.stage == stage && it.shards.supports(shards, replicas, context_parallel))
    }

    /// Exclusions whose features are all in the set.
    pub fn excluded(&self, features: Features) -> impl Iterator<Item = &Exclusion> {
        self.exclusions.iter().filter(move |it| features.contain(it.set()))
    }

    /// Returns whether the framework runs a set of features together.
    pub fn combines(&self, features: Features) -> bool {
        self.excluded(features).next().is_none()
    }

    /// For each exclusion, its features that are missing from the set; adding all of them is refused.
    pub fn refused_with(&self, features: Features) -> impl Iterator<Item = Features> {
        self.exclusions.iter().map(move |it| it.set().without(features))
    }

    /// The ZeRO stages that run together with these features.
    pub fn zero_stages_with(&self, features: Features) -> impl Iterator<Item = ZeroStage> {
        let with = move |stage| features.and(Features::of([Feature::of_zero(stage)]));
        self.zero.iter().map(|it| it.stage).filter(move |stage| self.combines(with(*stage)))
    }

    /// True if gradients of such a job are always in fp32 where weights are in 16 bits.
    pub fn has_fp32_gradients_alone(&self, job: Features) -> bool {
        let in_16 = Features::of([Feature::Gradients16]);
        self.zero_stages_with(job.and(in_16)).next().is_none()
    }

    /// Returns whether the framework runs a schedule over this number of ranks; one rank needs none.
    pub fn supports_schedule(&self, schedule: ScheduleKind, pipeline_parallel: u32) -> bool {
        pipeline_parallel == 1 || self.has_schedule(schedule)
    }

    /// Returns whether the framework runs a schedule over several ranks.
    pub fn has_schedule(&self, schedule: ScheduleKind) -> bool {
        let is_given = matches!(schedule, ScheduleKind::Given(_));
        self.schedules.contains(&schedule) || is_given && self.given_schedules
    }

    /// Returns whether the framework supports a recompute policy.
    pub fn supports_recompute(&self, recompute: Recompute) -> bool {
        let policy = match recompute {
            Recompute::None => RecomputePolicy::None,
            Recompute::Selective => RecomputePolicy::Selective,
            Recompute::Full => RecomputePolicy::Full,
            Recompute::FirstLayers(_) => RecomputePolicy::FirstLayers,
            Recompute::Modules(modules) => {
                return modules.iter().all(|module| self.recompute_modules.contains(&module));
            }
        };
        self.recompute.contains(&policy)
    }

    /// Returns whether the framework supports an offload to the host, for a chain of `num_blocks` blocks.
    pub fn supports_offload(&self, offload: Offload, num_blocks: u64) -> bool {
        if !offload.is_some() {
            return true;
        }
        let supports_blocks = match (self.activation_offload, offload.activations) {
            (_, OffloadedActivations::None) | (ActivationOffload::Any, _) => true,
            (ActivationOffload::WithFullRecompute, blocks) => {
                blocks == OffloadedActivations::AllBlocks
            }
            (ActivationOffload::OfSomeLayers, OffloadedActivations::AllBlocks) => false,
            (ActivationOffload::OfSomeLayers, OffloadedActivations::Blocks(each)) => {
                u64::from(each.get()) < num_blocks.saturating_sub(2)
            }
            (ActivationOffload::OfSomeLayers, OffloadedActivations::Modules(modules)) => {
                !modules.contains(OffloadModule::AttentionOutput)
                    || modules.contains(OffloadModule::Attention)
            }
        };
        supports_blocks && self.offload.contains(&offload.of_all_blocks())
    }

    /// Returns whether the framework supports offloaded activations together with pipeline, recompute and CUDA graphs.
    pub fn supports_offload_with(
        &self,
        offload: Offload,
        pipeline_parallel: u32,
        recompute: Recompute,
        graphs: CudaGraphs,
    ) -> bool {
        let plain = pipeline_parallel == 1 && graphs == CudaGraphs::None;
        !offload.activations.is_some()
            || match self.activation_offload {
                ActivationOffload::WithFullRecompute => recompute == Recompute::Full,
                ActivationOffload::OfSomeLayers => match offload.activations.modules() {
                    None => plain && recompute == Recompute::None,
                    Some(modules) => offloads_modules_with(modules, recompute, graphs),
                },
                ActivationOffload::Any => true,
            }
    }

    /// Returns whether the framework captures such CUDA graphs.
    pub fn supports_graphs(&self, graphs: CudaGraphs) -> bool {
        graphs == CudaGraphs::None || self.cuda_graphs.contains(&graphs)
    }

    /// Returns whether these CUDA graphs work with this recompute: a fully recomputed layer has no CUDA graph of its
    /// own (Megatron-Core: "full recompute is only supported with full iteration CUDA graph").
    pub fn graphs_work_with(graphs: CudaGraphs, recompute: Recompute) -> bool {
        let is_whole = matches!(recompute, Recompute::Full | Recompute::FirstLayers(_));
        graphs != CudaGraphs::Layers || !is_whole
    }

    /// Returns whether the framework has a token dispatcher; models without experts have all-to-all.
    pub fn supports_dispatcher(&self, dispatcher: TokenDispatcher) -> bool {
        let experts = self.experts.as_ref();
        experts.map_or(dispatcher == TokenDispatcher::AllToAll, |it| {
            it.dispatchers.is_empty() || it.dispatchers.contains(&dispatcher)
        })
    }

    /// Returns whether the framework overlaps exchanges of experts in such a pipeline.
    pub fn supports_overlap(
        &self,
        overlap: ExpertOverlap,
        [pipeline_parallel, virtual_stages]: [u32; 2],
        recompute: Recompute,
    ) -> bool {
        let ability = self.experts.as_ref().map_or(OverlapAbility::Never, |it| it.overlap);
        match (overlap, ability) {
            (ExpertOverlap::None, _) | (_, OverlapAbility::Always) => true,
            (_, OverlapAbility::Never) => false,
            (_, OverlapAbility::Interleaved) => {
                let keeps_layers =
                    !matches!(recompute, Recompute::Full | Recompute::FirstLayers(_));
                keeps_layers && (pipeline_parallel == 1 || virtual_stages > 1)
            }
        }
    }

    /// Checks that the abilities do not contradict each other, and that none of the required ones is missing.
    pub(super) fn check(&self) -> Result<(), FrameworkError> {
        let stage = "a stage at least, such as {\"stage\": 0, \"shards\": \"all\"}";
        let has_none = self.exclusions.iter().any(|it| it.set() == Features::NONE);
        for (field, is_empty, works) in [
            ("abilities.zero", self.zero.is_empty(), stage),
            ("abilities.recompute", self.recompute.is_empty(), "a policy at least, such as `none`"),
            ("abilities.precisions", self.precisions.is_empty(), "one at least, such as `bf16`"),
            ("abilities.moments", self.moments.is_empty(), "one at least, such as `fp32`"),
            ("abilities.exclusions[..].features", has_none, "one feature at least"),
        ] {
            if is_empty {
                return Err(FrameworkError::Empty { field, works });
            }
        }
        no_twice("abilities.schedules", &self.schedules, |it| it.name().to_owned())?;
        let stages: Vec<u8> = self.zero.iter().map(|ability| ability.stage.number()).collect();
        no_twice("abilities.zero", &stages, |it| format!("stage {it}"))?;
        no_twice("abilities.context_parallel", &self.context_parallel, |it| it.name().to_owned())?;
        no_twice("abilities.precisions", &self.precisions, |it| it.name().to_owned())?;
        let contradiction = |one: &str, other: &str, works| {
            let [one, other] = [one, other].map(str::to_owned);
            Err(FrameworkError::Contradiction { one, other, works })
        };
        if let Some(wrong) =
            self.moments.iter().find(|it| !matches!(it, Precision::Fp32 | Precision::Bf16))
        {
            let one = format!("`abilities.moments` has `{wrong}`");
            return contradiction(
                &one,
                "moments are planned in fp32 and bf16 alone",
                "`fp32`, `bf16` or both",
            );
        }
        let has_pipelines = !self.schedules.is_empty();
        let pipelines = Features::of([Feature::PipelineParallel]);
        if has_pipelines && self.zero_stages_with(pipelines).next().is_none() {
            let other = "`abilities.exclusions` leave no stage of ZeRO with them";
            let works = "a stage, such as 0 or 1, that runs with them, or no schedules";
            return contradiction("`abilities.schedules` has pipelines", other, works);
        }
        let offloads = self.offload.iter().any(|it| it.activations.is_some());
        let needed = match self.activation_offload {
            ActivationOffload::WithFullRecompute => Some(RecomputePolicy::Full),
            ActivationOffload::OfSomeLayers => Some(RecomputePolicy::None),
            ActivationOffload::Any => None,
        };
        if let Some(needed) = needed.filter(|it| offloads && !self.recompute.contains(it)) {
            let (full, works) = match needed {
                RecomputePolicy::Full => {
                    ("full recompute", "`full` among the policies, or no `activations`")
                }
                _ => ("no recompute", "`none` among the policies, or no `activations`"),
            };
            let one = "`abilities.offload` has `activations`";
            let other = format!(
                "they are offloaded with {full} alone, which `abilities.recompute` does not have"
            );
            return contradiction(one, &other, works);
        }
        if self.offload.iter().any(|it| *it != it.of_all_blocks()) {
            let one = "`abilities.offload` has a number of blocks, or modules";
            let other = "what is offloaded of layers is said by `abilities.activation_offload`";
            let works = "`activations` and `\"activation_offload\": \"of-some-layers\"`";
            return contradiction(one, other, works);
        }
        let shards_all = stages.contains(&3);
        if self.offload.iter().any(|it| it.parameters) && !shards_all {
            let one = "`abilities.offload` has `parameters`";
            let other =
                "these are offloaded with ZeRO 3 alone, which `abilities.zero` does not have";
            return contradiction(
                one,
                other,
                "stage 3 among those of `abilities.zero`, or no `parameters`",
            );
        }
        let Some(experts) = &self.experts else { return Ok(()) };
        no_twice("abilities.experts.dispatchers", &experts.dispatchers, |it| it.name().to_owned())?;
        if experts.dispatchers.is_empty() && experts.overlap != OverlapAbility::Never {
            let one = "`abilities.experts.overlap` is not `never`";
            let other = "without `dispatchers` nothing is exchanged";
            return contradiction(one, other, "a dispatcher, such as `all-to-all`, or `never`");
        }
        if self.sequence_parallel == SequenceAbility::Never && experts.tensor == ExpertTensor::None
        {
            let one = "`abilities.experts.tensor` is `none`, which takes sequence parallelism beside tensor parallelism";
            let other = "`abilities.sequence_parallel` is `never`";
            return contradiction(one, other, "`\"tensor\": \"all\"`, or sequences that are cut");
        }
        Ok(())
    }
}

fn no_twice<T: PartialEq>(
    field: &'static str,
    all: &[T],
    name: impl Fn(&T) -> String,
) -> Result<(), FrameworkError> {
    let twice = all.iter().enumerate().find(|(place, it)| all[..*place].contains(it));
    match twice {
        Some((_, what)) => Err(FrameworkError::Twice { field, what: format!("`{}`", name(what)) }),
        None => Ok(()),
    }
}

/// Returns whether modules can be offloaded individually together with recompute and CUDA graphs: experts must not be
/// fully recomputed, and norms must not be at the border of a graph.
///
/// # Source
///
/// Megatron-Core, `TransformerConfig.__post_init__` and `TransformerLayer._set_offload_modules`.
fn offloads_modules_with(
    offloaded: OffloadModules,
    recompute: Recompute,
    graphs: CudaGraphs,
) -> bool {
    use OffloadModule::{AttentionNorm, ExpertActivations, ExpertInputs, ExpertNorm};
    let has = |modules: [OffloadModule; 2]| modules.iter().any(|it| offloaded.contains(*it));
    let recomputes_experts =
        recompute.modules().is_some_and(|it| it.contains(RecomputeModule::Experts));
    let is_of_modules =
        matches!(recompute, Recompute::None | Recompute::Selective | Recompute::Modules(_));
    is_of_modules
        && !(recomputes_experts && has([ExpertInputs, ExpertActivations]))
        && match graphs {
            CudaGraphs::None => true,
            CudaGraphs::Layers => !has([AttentionNorm, ExpertNorm]),
            CudaGraphs::Iteration => false,
        }
}
