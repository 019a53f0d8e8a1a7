//! One description for all transformers. Readers of Hugging Face configurations produce it, the graph is lowered from
//! it, and the executor builds the model from it.
//!
//! Names are those of Hugging Face where it has one. Sizes are of the whole, unsharded model.

use serde::Deserialize;

pub use super::norm::{Norm, NormPlacement, NormType};
pub use super::recurrences::{Convolution, Decays, DeltaNet, Lightning, SelectiveScan, StateSpace};
use crate::graph::{Activation, AttentionMask, Real, Rotation, Routing, Scores};

/// A transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformer {
    /// Embedding of the input data.
    pub embedding: Embedding,
    /// An encoder whose output the layers attend to, as in T5.
    pub encoder: Option<Encoder>,
    /// The layers; equal neighbours are one entry.
    pub layers: Vec<Layers>,
    /// The norm after the last layer, where there is one.
    pub final_norm: Option<Norm>,
    /// Head, from the residual stream to the loss.
    pub head: Head,
    /// Layers of the multi-token prediction modules after the last layer (DeepSeek-V3), each with a projection from `2
    /// h` to `h`; they share the embedding and the head.
    pub prediction_modules: Vec<Layer>,
    /// Width of the residual stream, `h`.
    pub hidden_size: u64,
    /// Parallel residual streams, where there are several.
    pub streams: Option<Streams>,
    /// Factors on the residual stream and the logits.
    pub scales: Scales,
    /// Dropout rates in training.
    pub dropout: DropoutRates,
    /// Longest sequence that the model was made for, where known.
    pub max_position_embeddings: Option<u64>,
}

/// Parallel residual streams (hyper-connections, Zhu et al. 2024, arXiv 2409.19606). Each half of a layer reads a
/// weighted sum of the streams, as the head does, and adds its output to each stream. A linear layer over all streams
/// computes the weights for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Number of streams.
    pub count: u64,
    /// True if the streams are also mixed with each other (Xie et al. 2025, arXiv 2512.24880).
    pub are_mixed: bool,
}

/// A part of a multimodal model in addition to its language model: a tower or a projector.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Besides {
    /// Vision, audio or projector.
    pub name: String,
    /// Number of its parameters.
    pub num_parameters: u64,
}

/// Factors on tensors between the layers, where they are not 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scales {
    /// Factor on the embedding's output (Gemma, Granite).
    pub embedding: Option<Real>,
    /// Factor on the output of each sublayer (Granite).
    pub residual: Option<Real>,
    /// Factor on the logits (Cohere, Granite), or on the input of a tied head (T5).
    pub logits: Option<Real>,
    /// Cap of the logits: `x` becomes `cap tanh(x / cap)` (Gemma 2).
    pub logit_soft_cap: Option<Real>,
}

/// Shares of elements that dropout zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropoutRates {
    /// Rate after the embedding.
    pub embedding: Real,
    /// Rate of attention probabilities.
    pub attention: Real,
    /// Rate after attention.
    pub attention_output: Real,
    /// Rate of the input of the feed-forward block's last linear layer (T5).
    pub intermediate: Real,
    /// Rate after feed-forward. In parallel layers without a rate after attention, the rate of the sum of both
    /// (Falcon).
    pub feed_forward_output: Real,
    /// Rate after the final norm of a stack (T5).
    pub final_norm: Real,
    /// Rate at which whole layers are skipped (OPT), which the executor does not support.
    pub layers: Real,
}

/// A run of equal consecutive layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    /// Number of layers.
    pub count: u32,
    /// The layer that is repeated.
    pub layer: Layer,
}

/// An encoder stack, as wide as the decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    /// Front end that makes the encoder's input from sound; without one, the encoder embeds tokens with the decoder's
    /// table.
    pub sound: Option<Sound>,
    /// The layers.
    pub layers: Vec<Layers>,
    /// The norm after the last layer.
    pub final_norm: Option<Norm>,
}

/// Two convolutions of three positions over a spectrogram, each with a bias and an activation, the second with a
/// stride of two; then fixed position embeddings (Whisper, Radford et al. 2022, arXiv 2212.04356, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sound {
    /// Channels of the spectrogram.
    pub num_mel_bins: u64,
    /// Positions of the encoder: half the frames of the spectrogram.
    pub max_source_positions: u64,
    /// The function after each convolution.
    pub activation: Activation,
}

/// Embedding of input data into the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Embedding {
    /// A token table.
    Tokens {
        /// Rows of the table.
        vocab_size: u64,
        /// Width of a row, where it is not `h` and is projected (OPT-350m).
        projected_from: Option<u64>,
        /// A table of learned positions, where there is one.
        positions: Option<Positions>,
        /// Rows of a table of token types (BERT), where there is one.
        token_types: Option<u64>,
        /// A norm after the sum (BERT, BLOOM).
        norm: Option<Norm>,
    },
    /// Patches of an image, a class token and learned positions (ViT).
    Patches {
        /// Rows and columns of the image.
        image_size: u64,
        /// Rows and columns of a patch.
        patch_size: u64,
        /// Channels of the image.
        num_channels: u64,
    },
}

/// A table of learned positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Number of rows of the table.
    pub rows: u64,
    /// Row of position 0.
    pub first: u64,
}

/// Head, from the residual stream to the loss.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one class")]
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Number of classes: the size of the vocabulary or of a classifier's label set; without a head, `h`.
    pub num_classes: u64,
    /// True where the head uses the weight of the token embedding.
    pub tied: bool,
    /// True where the head has a bias.
    pub bias: bool,
    /// Dense layer, activation and norm before the head, as in BERT's masked language model.
    pub transform: Option<HeadTransform>,
    /// True where only the first position of a sequence reaches the head (ViT, BERT's pooler).
    pub first_token_only: bool,
    /// Width of a projection before the head, where it is not `h` (OPT-350m).
    pub projected_to: Option<u64>,
    /// True where there is no classification layer: the loss is computed from the outputs themselves (`BertModel`).
    pub is_missing: bool,
}

/// Dense layer, activation and norm before the head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadTransform {
    /// The activation function between dense layer and norm.
    pub activation: Activation,
    /// True where the dense layer has a bias.
    pub bias: bool,
    /// The norm, where there is one.
    pub norm: Option<Norm>,
}

/// A transformer layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Sequence mixer, which combines positions.
    pub mixer: Mixer,
    /// Attention to the encoder's output (T5's decoder).
    pub cross_attention: Option<Attention>,
    /// The feed-forward block.
    pub feed_forward: FeedForward,
    /// The norm that is used throughout the layer.
    pub norm: Norm,
    /// Placement of the norms.
    pub norm_placement: NormPlacement,
    /// A block before the mixer, whose weights several layers share (Zamba 2).
    pub shared_block: Option<Box<SharedBlock>>,
    /// Experts in parallel to the rest of the layer, which has a second half (LongCat-Flash).
    pub shortcut: Option<Box<Shortcut>>,
    /// An embedding of tokens for this layer alone, which is added at its end (Gemma 3n and 4).
    pub own_embedding: Option<LayerEmbedding>,
    /// Trained numbers that belong to no operator, by name; their work is not counted.
    pub numbers: Vec<(String, u64)>,
}

/// Attention and a feed-forward block without residual sums. Its input is the residual stream concatenated with the
/// model's embedding; its output is projected and added to the input of the layer's mixer. Several layers share its
/// weights, and each adds low-rank products of its own (Glorioso et al. 2024, arXiv 2411.15242, section 2).
#[derive(Clone, Debug, PartialEq)]
pub struct SharedBlock {
    /// Attention; its input is twice as wide as the residual stream.
    pub attention: Attention,
    /// The feed-forward block.
    pub mlp: Mlp,
    /// Index among the layers with such a block.
    pub index: u64,
    /// Index of the first layer with the same weights.
    pub owner: u64,
}

/// Experts that read the input of the dense feed-forward block, and whose output is added after the layer's second
/// half, so that the second half overlaps their exchanges (LongCat Team 2025, arXiv 2509.01322, section 2.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Shortcut {
    /// The experts.
    pub mixture: Mixture,
    /// The second half: attention and a dense feed-forward block.
    pub second: Layer,
}

/// An embedding of tokens for one layer. It is added to a projection of the model's embedding; the residual stream
/// gates the sum, which is then projected back to the residual stream (Gemma 3n).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerEmbedding {
    /// Rows of the table.
    pub vocab_size: u64,
    /// Width of a row.
    pub size: u64,
    /// The function of the gate.
    pub activation: Activation,
    /// The norm of the projected embedding, which all layers share.
    pub norm: Norm,
    /// True in the layer that has that norm.
    pub has_norm: bool,
}

impl Layer {
    /// Self-attention, if the layer has it.
    pub const fn attention(&self) -> Option<&Attention> {
        if let Mixer::Attention(attention) = &self.mixer { Some(attention) } else { None }
    }

    pub(super) const fn attention_mut(&mut self) -> Option<&mut Attention> {
        if let Mixer::Attention(attention) = &mut self.mixer { Some(attention) } else { None }
    }

    /// True for a layer that consists of attention and a feed-forward block or experts, and of nothing else.
    pub const fn is_usual(&self) -> bool {
        matches!(&self.mixer, Mixer::Attention(Attention { key_values: KeyValues::Projected, .. }))
            && !matches!(self.feed_forward, FeedForward::None)
            && self.shortcut.is_none()
            && self.own_embedding.is_none()
    }
}

/// A layer's sequence mixer.
#[expect(clippy::large_enum_variant, reason = "nearly all are attention")]
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Self-attention.
    Attention(Attention),
    /// A state-space model (Mamba-2).
    StateSpace(StateSpace),
    /// A state-space model with a state for each feature (Mamba).
    SelectiveScan(SelectiveScan),
    /// The delta rule with decays and a gate (Qwen3-Next, Kimi Linear).
    DeltaNet(DeltaNet),
    /// Linear attention with a fixed decay of each head and a gate (MiniMax-01).
    Lightning(Lightning),
    /// A short convolution between gates (LFM2).
    Convolution(Convolution),
    /// Several mixers on the same input, whose outputs are added (Falcon-H1).
    Parallel(Vec<Mixer>),
    /// Nothing: a feed-forward block is a layer of its own (Nemotron-H).
    None,
}

/// An attention sublayer.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one architecture")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Number of query heads, `a`.
    pub num_heads: u64,
    /// Number of key and value heads; fewer than `a` in grouped-query attention.
    pub num_kv_heads: u64,
    /// Number of features of a query or key head.
    pub head_dim: u64,
    /// Number of features of a value head.
    pub value_head_dim: u64,
    /// True where the query projection has a bias.
    pub query_bias: bool,
    /// True where the key projection has a bias.
    pub key_bias: bool,
    /// True where the value projection has a bias.
    pub value_bias: bool,
    /// True where the output projection has a bias.
    pub output_bias: bool,
    /// Norms of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Clamp limit of queries, keys and values (OLMo, MPT).
    pub clamp: Option<Real>,
    /// Rotary embedding of queries and keys.
    pub rotary: Option<Rotation>,
    /// Mask of the positions that a query attends to.
    pub mask: AttentionMask,
    /// Scale, cap and position bias of the scores.
    pub scores: Scores,
    /// True where the layer uses the trained position bias of the stack's first layer (T5).
    pub shares_bias: bool,
    /// Compressed queries, keys and values (DeepSeek).
    pub latent: Option<Latent>,
    /// A single key per position for all heads, which is also the value, with compressed keys for positions before a
    /// window (DeepSeek-V4).
    pub compressed: Option<Compressed>,
    /// Choice of key blocks from the layer's input (MiniMax-M3).
    pub chosen_blocks: Option<ChosenBlocks>,
    /// True where each head has a trained attention sink (gpt-oss).
    pub sinks: bool,
    /// Gate on the output, computed from the input of the layer's attention.
    pub gate: Option<AttentionGate>,
    /// The norm of each head of values (Gemma 4).
    pub value_norm: Option<Norm>,
    /// Source of keys and values.
    pub key_values: KeyValues,
    /// Rank of the low-rank products that are added to queries, keys and values (Zamba 2).
    pub adapter_rank: Option<u64>,
}

/// Source of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValues {
    /// Projections of the layer.
    Projected,
    /// One projection that is both key and value, before norms and rotation (Gemma 4).
    OneProjection,
    /// Projections of the layer, which later layers reuse (Gemma 3n and 4).
    Kept {
        /// The layers that reuse them.
        by: SharedBy,
        /// True where one projection is both key and value.
        one_projection: bool,
    },
    /// Keys and values that an earlier layer computed and kept.
    Reused(SharedBy),
}

/// Layers that use the same keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedBy {
    /// Layers with a sliding window.
    Sliding,
    /// Layers without one.
    Full,
}

/// Gate on attention's output: the sigmoid of a linear layer of attention's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionGate {
    /// A gate value for each feature of each head (AFMoE).
    Features,
    /// A gate value for each feature of each head, from one projection with the queries, and with their bias
    /// (Qwen3-Next).
    WithQuery,
    /// A gate value for each head (Step 3.5).
    Heads,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Over the features of each head, with one weight for all heads (Qwen3, Gemma 3).
    PerHead(Norm),
    /// Over the features of all heads at once (OLMo-2, OLMoE).
    AllHeads(Norm),
    /// Over the features of each head, with a separate weight for each head (Cohere, StableLM).
    EachHead(Norm),
}

/// Storage of a router's correction, which is not trained.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Correction {
    /// There is none.
    None,
    /// A buffer, which is not counted among the parameters.
    Buffer,
    /// A parameter without gradient, which is counted (AFMoE, ERNIE 4.5).
    Parameter,
}

/// The choice of keys for each query (DeepSeek-V3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexer {
    /// Number of heads.
    pub num_heads: u64,
    /// Number of features of a head.
    pub head_dim: u64,
    /// Number of keys that are chosen.
    pub keys: u64,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Width of the compressed queries; `None` where they are not compressed.
    pub q_lora_rank: Option<u64>,
    /// Width of the compressed keys and values.
    pub kv_lora_rank: u64,
    /// Number of features of each head without rotation.
    pub qk_nope_head_dim: u64,
    /// Number of features with rotation; the key has one set for all heads.
    pub qk_rope_head_dim: u64,
    /// True where the down-projections have biases.
    pub down_bias: bool,
    /// Norm of the compressed representations.
    pub norm: Norm,
    /// The choice of keys, from compressed queries; `None` where all are attended to.
    pub indexer: Option<Indexer>,
}

/// Attention of all heads to one key per position of a window, which is also the value, and to compressed keys
/// (DeepSeek-AI 2026, *DeepSeek-V4*, section 2.3). Queries are compressed as in latent attention; the output is first
/// projected group by group, each group being several heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// Width of the compressed queries.
    pub q_lora_rank: u64,
    /// Norm of compressed queries, of queries and of keys.
    pub norm: Norm,
    /// Groups of heads in the output's projection.
    pub output_groups: u64,
    /// Width of a group after its own projection.
    pub output_rank: u64,
    /// Keys of blocks; `None` in layers with the window alone.
    pub blocks: Option<KeyBlocks>,
}

/// Keys that each stand for a block of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBlocks {
    /// Positions of a block.
    pub length: u64,
    /// True if the key of a block also covers a part of the preceding block.
    pub overlap: bool,
    /// The choice of blocks; `None` where all are attended to.
    pub indexer: Option<Indexer>,
}

/// Choice of key blocks; each head of the indexer chooses its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenBlocks {
    /// The indexer; the number of keys that it chooses is that of the keys in the chosen blocks.
    pub indexer: Indexer,
    /// Positions of a block.
    pub length: u64,
    /// Norm of the indexer's queries and keys.
    pub norm: Norm,
}

/// A feed-forward block.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// One block for all tokens.
    Dense(Mlp),
    /// A mixture of experts, some of which a router chooses for each token.
    Mixture(Mixture),
    /// None: the mixer alone is a layer.
    None,
}

/// Two or three linear layers around an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Inner width.
    pub intermediate_size: u64,
    /// True where the activation of one projection multiplies another.
    pub gated: bool,
    /// True where the projection into the inner width has a bias.
    pub up_bias: bool,
    /// True where the projection out of the inner width has a bias.
    pub down_bias: bool,
    /// The activation function.
    pub activation: Activation,
    /// Clamp limit of gate and value, after which 1 is added to the value (gpt-oss).
    pub clamp: Option<Real>,
    /// Rank of the low-rank product that is added to gate and value (Zamba 2).
    pub adapter_rank: Option<u64>,
}

/// Experts whose output is their input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroExperts {
    /// Number of such experts.
    pub count: u64,
    /// True where they nevertheless have weights, which nothing uses.
    pub has_weights: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// Number of routed experts.
    pub num_experts: u64,
    /// Number of experts that each token goes to, top-k.
    pub top_k: u64,
    /// The feed-forward block of an expert.
    pub expert: Mlp,
    /// Shared experts, which process every token, as one block of their total width.
    pub shared: Option<Mlp>,
    /// True where the shared block is weighted by a trained gate (Qwen2-MoE).
    pub shared_gate: bool,
    /// True where the router has a trained bias.
    pub router_bias: bool,
    /// Choice and weights of the experts.
    pub routing: Routing,
    /// Width that routed tokens are projected to and back from, where it is not `h` (Nemotron 3).
    pub latent_size: Option<u64>,
    /// Correction added to the scores when experts are chosen (DeepSeek-V3).
    pub correction: Correction,
    /// Additional experts whose output is their input; `top_k` counts the other experts, on average (LongCat-Flash).
    pub zero_experts: Option<ZeroExperts>,
    /// The norm that router, routed experts and shared block each have on their own; the latter two have one also
    /// after their outputs. Router and experts read the residual stream itself, and weights are scaled for each expert
    /// (Gemma 4).
    pub own_norms: Option<Norm>,
}
