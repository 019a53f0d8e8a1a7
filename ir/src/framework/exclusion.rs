//! Combinations that a framework does not run: features of a layout, its model and its training, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::graph::{CudaGraphs, ExpertOverlap, Recompute};
use crate::layout::{Offload, ZeroStage};
use crate::schedule::ScheduleKind;

/// Defines [`Feature`], with the phrase for each.
macro_rules! features {
    ($($(#[$attribute:meta])+ $name:ident $words:literal,)*) => {
        /// A feature of a layout, of its model or of its training, by which frameworks refuse combinations.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "kebab-case")]
        pub enum Feature {
            $($(#[$attribute])+ $name,)*
        }

        impl Feature {
            /// The feature in words.
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

features! {
    /// Several tensor-parallel ranks.
    TensorParallel "tensor parallelism",
    /// Tensor-parallel ranks that hold a part of the sequence between products.
    SequenceParallel "sequence parallelism",
    /// More tensor-parallel ranks than key-value heads, which several ranks then hold.
    SharedKeyValueHeads "more tensor-parallel ranks than key-value heads",
    /// Fewer key-value heads than heads.
    GroupedHeads "grouped-query attention",
    /// Layers that attend to a window of positions.
    SlidingWindow "sliding windows",
    /// Heads with a trained sink.
    AttentionSinks "attention sinks",
    /// Keys and values that are projected from latents.
    LatentAttention "latent attention (MLA)",
    /// Attention that the model's class in transformers does not delegate to one of its interchangeable functions, or
    /// whose configuration lacks a number of key-value heads.
    OwnAttention "attention that the model's class computes by itself",
    /// Layers for which AutoTP has no plan, or one that it does not follow.
    UnplannedLayers "layers that AutoTP does not cut",
    /// Layers that transformers itself cannot shard over ranks.
    NoTensorPlan "layers that transformers has no plan to cut",
    /// Weights that modules other than embedding and head share.
    SharedWeights "weights that more than embedding and head share",
    /// Several context-parallel ranks.
    ContextParallel "context parallelism",
    /// Context parallelism by a ring.
    Ring "context parallelism by a ring",
    /// Context parallelism by an exchange of heads (Ulysses).
    AllToAll "context parallelism by all-to-all (Ulysses)",
    /// A sequence that is not divisible into two parts for each context-parallel rank.
    UnpairedSequence "a sequence that twice the context-parallel ranks do not divide",
    /// Experts on several ranks.
    ExpertParallel "expert parallelism",
    /// Each expert sharded over several ranks.
    ExpertTensorParallel "experts that are cut over several ranks",
    /// The `DeepEP` dispatcher.
    DeepEp "DeepEP",
    /// The hybrid-EP dispatcher.
    HybridEp "HybridEP",
    /// A number of ranks that `DeepEP` has no configuration for.
    UnlistedDeepEpRanks "a number of ranks that DeepEP has no configuration for",
    /// Experts on several ranks, and a sequence that the context- and tensor-parallel ranks do not divide.
    UndividedTokens "a sequence that context x tensor parallel ranks do not divide",
    /// Exchanges of experts that overlap another micro-batch.
    ExpertOverlap "overlapped exchanges of experts",
    /// CUDA graphs of any kind.
    CudaGraphs "CUDA graphs",
    /// Several pipeline ranks.
    PipelineParallel "pipelines",
    /// Several stages on each pipeline rank.
    VirtualStages "several stages on each pipeline rank",
    /// Two pipeline ranks.
    TwoPipelineRanks "two pipeline ranks",
    /// Fewer micro-batches than pipeline ranks.
    FewMicroBatches "fewer micro-batches than pipeline ranks",
    /// Micro-batches that the pipeline ranks do not divide.
    UndividedMicroBatches "micro-batches that the pipeline ranks do not divide",
    /// Several micro-batches without a pipeline.
    GradientAccumulation "gradient accumulation",
    /// A schedule that computes input and weight gradients separately.
    SplitBackward "a schedule that splits backward",
    /// Several data-parallel ranks.
    DataParallel "data parallelism",
    /// Model states that replicas do not shard.
    #[serde(rename = "zero-0")]
    Zero0 "ZeRO 0",
    /// Optimizer states that replicas shard.
    #[serde(rename = "zero-1")]
    Zero1 "ZeRO 1",
    /// Optimizer states and gradients that replicas shard.
    #[serde(rename = "zero-2")]
    Zero2 "ZeRO 2",
    /// Optimizer states, gradients and parameters that replicas shard.
    #[serde(rename = "zero-3")]
    Zero3 "ZeRO 3",
    /// States sharded over fewer ranks than there are replicas.
    HybridSharding "sharding over some of the replicas",
    /// States sharded only over the ranks that hold one sequence, where there are several replicas.
    ContextShards "sharding over the context-parallel ranks alone",
    /// Optimizer states in the host's memory.
    OptimizerOffload "offload of the optimizer",
    /// Parameters in the host's memory.
    ParameterOffload "offload of parameters",
    /// Activations in the host's memory.
    ActivationOffload "offload of activations",
    /// Whole layers computed again.
    FullRecompute "full recompute",
    /// Parts of layers computed again.
    SelectiveRecompute "selective recompute",
    /// A mixture of experts.
    Experts "a mixture of experts",
    /// Low-rank adapters.
    Adapters "adapters (LoRA)",
    /// An embedding whose weights the head shares.
    TiedEmbedding "tied embeddings",
    /// 16-bit weights that are updated without a copy in fp32.
    NoMasterWeights "updates without master weights",
    /// 16-bit weights with a copy in fp32.
    MasterWeights "master weights",
    /// The optimizer Muon.
    Muon "Muon",
    /// The optimizer's moments in bf16.
    Bf16Moments "moments in bf16",
    /// The optimizer's moments in fp32.
    Fp32Moments "moments in fp32",
    /// A loss in one function with the head.
    FusedLoss "losses fused with the head",
    /// Hardware other than TPUs.
    OffTpu "hardware other than TPUs",
    /// GPUs that are not connected by NVLink within a node.
    NoNvlink "GPUs without NVLink",
    /// GPUs before NVIDIA's Hopper, or of another vendor.
    BeforeHopper "GPUs other than Hopper and Blackwell",
    /// Linear layers in fp32.
    Fp32 "fp32",
    /// Linear layers in fp16.
    Fp16 "fp16",
    /// Linear layers in fp8.
    Fp8 "fp8",
    /// Gradients that are added up and reduced in 16 bits.
    #[serde(rename = "16-bit-gradients")]
    Gradients16 "gradients in 16 bits (`--fp32-gradients` is what it has)",
    /// Gradients that are added up and reduced in fp32, where weights are in 16 bits.
    #[serde(rename = "fp32-gradients")]
    Gradients32 "gradients in fp32 (it has them in 16 bits)",
}

const _: () =
    assert!((Feature::Gradients32 as u32) < u64::BITS, "a feature has no bit in `Features`");

impl Feature {
    const fn bit(self) -> u64 {
        1 << self as u32
    }

    /// The feature of a ZeRO stage.
    pub const fn of_zero(stage: ZeroStage) -> Self {
        match stage {
            ZeroStage::None => Self::Zero0,
            ZeroStage::OptimizerState => Self::Zero1,
            ZeroStage::Gradients => Self::Zero2,
            ZeroStage::Parameters => Self::Zero3,
        }
    }
}

/// A set of features, with a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Features(u64);

impl Features {
    /// No features.
    pub const NONE: Self = Self(0);

    /// Features that depend on schedule, recompute, offload and sharding of model states.
    pub const OF_SUBFAMILIES: Self = Self(
        Feature::Zero0.bit()
            | Feature::Zero1.bit()
            | Feature::Zero2.bit()
            | Feature::Zero3.bit()
            | Feature::HybridSharding.bit()
            | Feature::ContextShards.bit()
            | Feature::OptimizerOffload.bit()
            | Feature::ParameterOffload.bit()
            | Feature::ActivationOffload.bit()
            | Feature::VirtualStages.bit()
            | Feature::SplitBackward.bit()
            | Feature::FullRecompute.bit()
            | Feature::SelectiveRecompute.bit(),
    );

    /// The set of these features.
    pub fn of(all: impl IntoIterator<Item = Feature>) -> Self {
        Self(all.into_iter().fold(0, |set, feature| set | feature.bit()))
    }

    /// The features whose conditions hold.
    pub fn which(all: impl IntoIterator<Item = (Feature, bool)>) -> Self {
        Self::of(all.into_iter().filter_map(|(feature, holds)| holds.then_some(feature)))
    }

    /// The features of either set.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all features of another set are in this one.
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The features that are not in another set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether a feature is in the set.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & feature.bit() != 0
    }

    /// Features of offload and of the sharding of model states, over `shards` of `replicas` ranks, of which
    /// `context_parallel` hold one sequence.
    pub fn of_states(
        stage: ZeroStage,
        [shards, replicas, context_parallel]: [u32; 3],
        offload: Offload,
    ) -> Self {
        let is_hybrid = stage != ZeroStage::None && shards < replicas;
        Self::which([
            (Feature::of_zero(stage), true),
            (Feature::HybridSharding, is_hybrid),
            (
                Feature::ContextShards,
                is_hybrid && context_parallel > 1 && shards == context_parallel,
            ),
        ])
        .and(Self::of_offload(offload))
    }

    /// Features of an offload.
    pub fn of_offload(offload: Offload) -> Self {
        Self::which([
            (Feature::OptimizerOffload, offload.optimizer),
            (Feature::ParameterOffload, offload.parameters),
            (Feature::ActivationOffload, offload.activations.is_some()),
        ])
    }

    /// Features of a recompute policy.
    pub fn of_recompute(recompute: Recompute) -> Self {
        let is_selective = matches!(recompute, Recompute::Selective | Recompute::Modules(_));
        let is_full = matches!(recompute, Recompute::Full | Recompute::FirstLayers(_));
        Self::which([
            (Feature::SelectiveRecompute, is_selective),
            (Feature::FullRecompute, is_full),
        ])
    }

    /// Features of the overlap of experts and of CUDA graphs.
    pub fn of_switches(overlap: ExpertOverlap, graphs: CudaGraphs) -> Self {
        Self::which([
            (Feature::ExpertOverlap, overlap != ExpertOverlap::None),
            (Feature::CudaGraphs, graphs != CudaGraphs::None),
        ])
    }

    /// Features of a schedule with a number of stages on each pipeline rank.
    pub fn of_schedule(
        schedule: ScheduleKind,
        pipeline_parallel: u32,
        virtual_stages: u32,
    ) -> Self {
        let has_pipeline = pipeline_parallel > 1;
        Self::which([
            (Feature::VirtualStages, has_pipeline && virtual_stages > 1),
            (Feature::SplitBackward, has_pipeline && schedule.splits_backward()),
        ])
    }

    /// Features of the numbers of pipeline ranks, of micro-batches (where known), and of data-parallel ranks.
    pub fn of_ranks(
        pipeline_parallel: u32,
        num_micro_batches: Option<u32>,
        data_parallel: u32,
    ) -> Self {
        let p = pipeline_parallel;
        let has = |is: fn(u32, u32) -> bool| p > 1 && num_micro_batches.is_some_and(|m| is(m, p));
        Self::which([
            (Feature::PipelineParallel, p > 1),
            (Feature::GradientAccumulation, p == 1 && num_micro_batches.is_some_and(|m| m > 1)),
            (Feature::TwoPipelineRanks, p == 2),
            (Feature::FewMicroBatches, has(|m, p| m < p)),
            (Feature::UndividedMicroBatches, has(|m, p| !m.is_multiple_of(p))),
            (Feature::DataParallel, data_parallel > 1),
        ])
    }
}

/// Features that a framework does not run together; with one feature, it does not run that feature at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// A layout that has all of these features is refused.
    pub features: FeatureList,
    /// Place where the framework states this: file and line of a version, or the thread.
    pub source: String,
}

/// Features in the order in which they are named, and also as a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "Vec<Feature>", into = "Vec<Feature>")]
#[cfg_attr(feature = "schema", schemars(with = "Vec<Feature>"))]
pub struct FeatureList {
    named: Vec<Feature>,
    set: Features,
}

impl From<Vec<Feature>> for FeatureList {
    fn from(named: Vec<Feature>) -> Self {
        let set = Features::of(named.iter().copied());
        Self { named, set }
    }
}

impl From<FeatureList> for Vec<Feature> {
    fn from(list: FeatureList) -> Self {
        list.named
    }
}

impl Exclusion {
    /// The features as a set.
    pub const fn set(&self) -> Features {
        self.features.set
    }
}

impl fmt::Display for Exclusion {
    /// Formats the features, as in `tensor parallelism with pipelines`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.features.named.iter().map(|it| it.words()).collect();
        f.write_str(&words.join(" with "))
    }
}
