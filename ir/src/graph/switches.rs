//! What of a run is switched on or off, beside its layout.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What of a run is switched on or off, beside its degrees.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// How tokens come to their experts.
    pub token_dispatcher: TokenDispatcher,
    /// What the exchanges of experts run beside.
    pub expert_overlap: ExpertOverlap,
    /// Which kernels are captured in CUDA graphs.
    pub cuda_graphs: CudaGraphs,
}

impl Switches {
    /// What frameworks do by default.
    pub const USUAL: Self = Self {
        token_dispatcher: TokenDispatcher::AllToAll,
        expert_overlap: ExpertOverlap::None,
        cuda_graphs: CudaGraphs::None,
    };

    /// Whether none differs from what frameworks do by default.
    pub fn are_usual(&self) -> bool {
        *self == Self::USUAL
    }
}

/// What of an embedding's table a tensor-parallel rank has, where no head is tied to it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingTable {
    /// Its part of the vocabulary: Megatron-LM's vocabulary-parallel embedding.
    #[default]
    Part,
    /// All of it: plans of DTensor that do not name it.
    Whole,
}

/// How tokens come to experts on other ranks, and back.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TokenDispatcher {
    /// Every rank sends each token once for each of its experts.
    #[default]
    AllToAll,
    /// Every rank gathers the tokens of all, and takes those for its experts; what these put out is summed by a
    /// reduce-scatter.
    AllGather,
    /// A token goes once to each node that has experts for it, and there once to each rank (DeepSeek-AI 2025).
    DeepEp,
    /// The same over network domains larger than a node (NVIDIA's `HybridEP`).
    HybridEp,
}

impl TokenDispatcher {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AllToAll, Self::AllGather, Self::DeepEp, Self::HybridEp];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllToAll => "all-to-all",
            Self::AllGather => "all-gather",
            Self::DeepEp => "deep-ep",
            Self::HybridEp => "hybrid-ep",
        }
    }

    /// Whether a token crosses a network once for all its experts beyond.
    pub const fn sends_tokens_once(self) -> bool {
        matches!(self, Self::DeepEp | Self::HybridEp)
    }
}

/// What the exchanges of experts run beside.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ExpertOverlap {
    /// Nothing.
    #[default]
    None,
    /// Passes of another micro-batch.
    MicroBatch,
}

impl ExpertOverlap {
    /// Both.
    pub const ALL: [Self; 2] = [Self::None, Self::MicroBatch];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MicroBatch => "micro-batch",
        }
    }
}

/// Which kernels are captured in CUDA graphs, and so are launched together.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CudaGraphs {
    /// None.
    #[default]
    None,
    /// Those of layers whose shapes do not change from step to step: attention and router, but not experts.
    Layers,
    /// All of a step.
    Iteration,
}

impl CudaGraphs {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Layers, Self::Iteration];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Layers => "layers",
            Self::Iteration => "iteration",
        }
    }
}

impl fmt::Display for TokenDispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for ExpertOverlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for CudaGraphs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
