//! One description that every transformer fits: what the readers of Hugging Face configurations
//! produce, what the graph is built from, and what the executor builds.
//!
//! Names follow Hugging Face where it has one. Sizes are those of the whole model.

use ordered_float::OrderedFloat;
use serde::Deserialize;

use crate::graph::{Activation, AttentionMask, Real, Rotation, Routing, Scores};

/// A transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformer {
    /// What turns data into the residual stream.
    pub embedding: Embedding,
    /// An encoder whose output the layers attend to, as in T5.
    pub encoder: Option<Encoder>,
    /// The layers, equal ones that follow one another together.
    pub layers: Vec<Layers>,
    /// The norm after the last layer, where there is one.
    pub final_norm: Option<Norm>,
    /// What turns the residual stream into a loss.
    pub head: Head,
    /// The layers of the multi-token prediction modules after the last layer (DeepSeek-V3), each with a
    /// projection of `2 h` to `h`; they share the embedding and the head.
    pub prediction_modules: Vec<Layer>,
    /// Width of the residual stream, `h`.
    pub hidden_size: u64,
    /// What the residual stream and the logits are multiplied by.
    pub scales: Scales,
    /// What training zeroes at random.
    pub dropout: DropoutRates,
    /// The longest sequence that the model was made for, where it says.
    pub max_position_embeddings: Option<u64>,
}

/// What tensors between the layers are multiplied by, where it is not 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scales {
    /// What comes from the tables (Gemma, Granite).
    pub embedding: Option<Real>,
    /// What each sublayer adds to the residual stream (Granite).
    pub residual: Option<Real>,
    /// The logits (Cohere, Granite); or where the head is tied, what it reads (T5).
    pub logits: Option<Real>,
    /// Logits `x` become `cap tanh(x / cap)` (Gemma 2).
    pub logit_soft_cap: Option<Real>,
}

/// The shares of elements that training zeroes at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropoutRates {
    /// After the embedding.
    pub embedding: Real,
    /// Of attention probabilities.
    pub attention: Real,
    /// After attention.
    pub attention_output: Real,
    /// Of what the last matrix of feed-forward is given (T5).
    pub intermediate: Real,
    /// After feed-forward; where both stand side by side, and no rate for attention's output is stated, of their sum
    /// (Falcon).
    pub feed_forward_output: Real,
    /// After the norms that end a stack (T5).
    pub final_norm: Real,
    /// Of whole layers (OPT), which is not run.
    pub layers: Real,
}

/// Equal layers that follow one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    /// How many.
    pub count: u32,
    /// What each is.
    pub layer: Layer,
}

/// An encoder stack, with the same width as the decoder's.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    /// The layers.
    pub layers: Vec<Layers>,
    /// The norm after the last.
    pub final_norm: Option<Norm>,
}

/// What turns data into the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Embedding {
    /// A table of tokens.
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
    /// Its rows.
    pub rows: u64,
    /// The row of the first position.
    pub first: u64,
}

/// What turns the residual stream into a loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Classes: the vocabulary, or labels of a classifier.
    pub num_classes: u64,
    /// Whether the weight is that of the token embedding.
    pub tied: bool,
    /// Whether a bias is added.
    pub bias: bool,
    /// A dense layer, activation and norm before it, as BERT's masked language model has.
    pub transform: Option<HeadTransform>,
    /// Whether only the first position is classified (ViT).
    pub first_token_only: bool,
    /// Width that the residual stream is projected to first, where it is not `h` (OPT-350m).
    pub projected_to: Option<u64>,
}

/// Dense layer, activation and norm in front of the head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadTransform {
    /// The function between dense layer and norm.
    pub activation: Activation,
    /// The norm.
    pub norm: Norm,
}

/// A normalisation and what it trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm {
    /// Whether the mean is taken out.
    pub kind: NormType,
    /// Whether it has a trained scale.
    pub weight: bool,
    /// Whether it has a trained shift.
    pub bias: bool,
    /// Added to the variance or mean square.
    pub epsilon: Real,
    /// Whether the scale is the trained one plus 1 (Gemma).
    pub unit_offset: bool,
}

impl Norm {
    /// Root mean square norm with a scale.
    pub const fn rms(epsilon: f64) -> Self {
        let kind = NormType::RmsNorm;
        let epsilon = OrderedFloat(epsilon);
        Self { kind, weight: true, bias: false, epsilon, unit_offset: false }
    }

    /// Layer norm with scale and shift.
    pub const fn layer(epsilon: f64) -> Self {
        let kind = NormType::LayerNorm;
        let epsilon = OrderedFloat(epsilon);
        Self { kind, weight: true, bias: true, epsilon, unit_offset: false }
    }
}

/// The two norms of transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormType {
    /// Mean and variance.
    LayerNorm,
    /// Root mean square.
    RmsNorm,
}

/// A transformer layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Self-attention.
    pub attention: Attention,
    /// Attention to the encoder's output (T5's decoder).
    pub cross_attention: Option<Attention>,
    /// The feed-forward block.
    pub feed_forward: FeedForward,
    /// The norm used in this layer.
    pub norm: Norm,
    /// Where the norms stand.
    pub norm_placement: NormPlacement,
}

/// Where the norms of a layer stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// Before attention and before feed-forward (GPT-2, Llama).
    Pre,
    /// The same, and what is added to is what the norm put out (an option of BLOOM)
    PreWithResidual,
    /// After each residual sum (BERT, OPT-350m).
    PostResidual,
    /// On the outputs of attention and feed-forward, before the sum (OLMo-2).
    PostBlock,
    /// Before and after each (Gemma 2 and 3).
    Sandwich,
    /// Attention and feed-forward side by side on one norm (GPT-J, Falcon-7B, Cohere, Phi-2).
    ParallelShared,
    /// Side by side, each with a norm of its own (GPT-NeoX, Falcon-40B).
    ParallelSeparate,
}

/// Attention.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one architecture")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Query heads, `a`.
    pub num_heads: u64,
    /// Key and value heads; fewer than `a` in grouped-query attention.
    pub num_kv_heads: u64,
    /// Features of a query and a key.
    pub head_dim: u64,
    /// Features of a value.
    pub value_head_dim: u64,
    /// Whether the query projection has a bias.
    pub query_bias: bool,
    /// Whether the key projection has a bias.
    pub key_bias: bool,
    /// Whether the value projection has a bias.
    pub value_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Norms of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// What queries, keys and values are cut off at (OLMo, MPT).
    pub clamp: Option<Real>,
    /// How queries and keys are rotated by position.
    pub rotary: Option<Rotation>,
    /// Which positions are seen.
    pub mask: AttentionMask,
    /// How scores come from queries and keys.
    pub scores: Scores,
    /// Whether a trained bias of positions is that of the first layer (T5).
    pub shares_bias: bool,
    /// Queries, keys and values through compressed representations (DeepSeek).
    pub latent: Option<Latent>,
    /// A trained sink for each head (gpt-oss).
    pub sinks: bool,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Over the features of each head, one weight for all heads (Qwen3, Gemma 3).
    PerHead(Norm),
    /// Over all heads at once (OLMo-2, OLMoE).
    AllHeads(Norm),
    /// Over the features of each head, with weights of its own for each head (Cohere, StableLM).
    EachHead(Norm),
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Width of the compressed queries, where they are compressed.
    pub q_lora_rank: Option<u64>,
    /// Width of the compressed keys and values.
    pub kv_lora_rank: u64,
    /// Features of each head without position.
    pub qk_nope_head_dim: u64,
    /// Features with position; one key for all heads.
    pub qk_rope_head_dim: u64,
    /// Whether the down-projections have biases.
    pub down_bias: bool,
    /// The norms of what is compressed.
    pub norm: Norm,
}

/// A feed-forward block.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// One for all tokens.
    Dense(Mlp),
    /// Experts, of which a router chooses some for each token.
    Mixture(Mixture),
}

/// Two or three linear layers around an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Inner width.
    pub intermediate_size: u64,
    /// Whether the activation of one projection gates another.
    pub gated: bool,
    /// Whether the projection into the inner width has a bias.
    pub up_bias: bool,
    /// Whether the projection out of it has a bias.
    pub down_bias: bool,
    /// The function.
    pub activation: Activation,
    /// Where gate and value are cut off, of which the value then counts one more (gpt-oss).
    pub clamp: Option<Real>,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// Experts to choose among.
    pub num_experts: u64,
    /// Experts for each token.
    pub top_k: u64,
    /// What each expert is.
    pub expert: Mlp,
    /// Experts that every token goes to, as one block of their total width.
    pub shared: Option<Mlp>,
    /// Whether the shared block is weighted by a gate of its own (Qwen2-MoE).
    pub shared_gate: bool,
    /// Whether the router has a bias that is trained.
    pub router_bias: bool,
    /// How experts are weighed and chosen.
    pub routing: Routing,
    /// Whether a correction that is not trained takes part in the choice (DeepSeek-V3).
    pub corrects_choice: bool,
}
