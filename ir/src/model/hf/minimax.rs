//! MiniMax-M2.

use super::parts::{self, Defaults, Shape};
use crate::graph::{RouterScores, Routing};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{
    Attention, FeedForward, Mixture, Norm, NormPlacement, QkNorm, Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 200_064,
    num_attention_heads: 48,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    intermediate_size: Some(1536),
    max_position_embeddings: 196_608,
    tie_word_embeddings: false,
};

/// The releases' modules for multi-token prediction are not described.
pub(super) fn minimax_m2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?);
    // Releases say how many features are rotated, later configurations which share.
    let rotated = fields.nullable_size_or("rotary_dim", None)?;
    let share = rotated.map_or(1.0, |features| features as f64 / shape.head_dim as f64);
    let defaults = RotaryDefaults { theta: 5_000_000.0, share, ..RotaryDefaults::default() };
    let attention = Attention {
        qk_norm: Some(QkNorm::AllHeads(norm)),
        rotary: Some(rotary::rotation(fields, shape.head_dim, defaults)?),
        ..shape.attention()
    };
    let mixture = parts::mixture(
        fields.size_or("num_local_experts", 256)?,
        fields.size_or("num_experts_per_tok", 8)?,
        shape.gated_mlp(fields.activation_or("hidden_act", "silu")?),
    );
    let routing = Routing { scores: RouterScores::Sigmoid, ..mixture.routing };
    let mixture = Mixture { routing, corrects_choice: true, ..mixture };
    let layer = parts::layer(attention, FeedForward::Mixture(mixture), norm, NormPlacement::Pre);
    Ok(Transformer {
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
