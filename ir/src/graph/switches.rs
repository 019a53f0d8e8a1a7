//! Options of a run that are switched on or off, in addition to its layout.

use serde::{Deserialize, Serialize};

/// Switches of a run, in addition to its degrees.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// Method by which tokens reach their experts.
    pub token_dispatcher: TokenDispatcher,
    /// Work that the exchanges of experts are overlapped with.
    pub expert_overlap: ExpertOverlap,
    /// Which kernels are captured in CUDA graphs.
    pub cuda_graphs: CudaGraphs,
}

impl Switches {
    /// The defaults of frameworks.
    pub const USUAL: Self = Self {
        token_dispatcher: TokenDispatcher::AllToAll,
        expert_overlap: ExpertOverlap::None,
        cuda_graphs: CudaGraphs::None,
    };

    /// True if all options have the defaults of frameworks.
    pub fn are_usual(&self) -> bool {
        *self == Self::USUAL
    }
}

/// Part of an embedding's table that a tensor-parallel rank holds, where no head is tied to the embedding.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingTable {
    /// The rank's part of the vocabulary: Megatron-LM's vocabulary-parallel embedding.
    #[default]
    Part,
    /// The whole table: DTensor plans that do not name the embedding.
    Whole,
}

named_enum! {
    /// Method by which tokens reach experts on other ranks, and their outputs come back.
    #[derive(Default)]
    pub enum TokenDispatcher {
        /// Every rank sends each token once for each of its experts.
        #[default]
        AllToAll = "all-to-all",
        /// Every rank gathers the tokens of all ranks, and uses those for its experts; a reduce-scatter sums the
        /// outputs of the experts.
        AllGather = "all-gather",
        /// A token goes once to each node that has experts for it, and within the node once to each rank (DeepSeek-AI
        /// 2025).
        DeepEp = "deep-ep",
        /// As `deep-ep`, over network domains larger than a node (NVIDIA's `HybridEP`).
        HybridEp = "hybrid-ep",
    }
}

impl TokenDispatcher {
    /// True if a token crosses the network once for all of its experts behind that network.
    pub const fn sends_tokens_once(self) -> bool {
        matches!(self, Self::DeepEp | Self::HybridEp)
    }
}

named_enum! {
    /// Work that the exchanges of experts are overlapped with.
    #[derive(Default)]
    pub enum ExpertOverlap {
        /// Nothing.
        #[default]
        None = "none",
        /// Passes of another micro-batch.
        MicroBatch = "micro-batch",
    }
}

named_enum! {
    /// Kernels that are captured in CUDA graphs, and so are launched together.
    #[derive(Default)]
    pub enum CudaGraphs {
        /// None.
        #[default]
        None = "none",
        /// Kernels of layers whose shapes do not change from step to step: attention and router, but not experts.
        Layers = "layers",
        /// All of a step.
        Iteration = "iteration",
    }
}
