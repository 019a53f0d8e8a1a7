//! Definition of a Llama, for tools that have no model file and build Llamas of any size.

use ir::graph::{Activation, AttentionMask, PositionBias, RotaryPairs, RotaryScaling};
use ir::model::Transformer;
use ir::model::transformer::{
    Embedding, FeedForward, Layer, Mixer, NormPlacement, NormType, Scales,
};

/// The first part of a model that differs from a Llama, or `None` for a Llama.
pub(super) fn unlike(transformer: &Transformer) -> Option<&'static str> {
    let [first] = transformer.layers.as_slice() else {
        return Some("its layers are unlike each other");
    };
    let Layer { mixer, feed_forward, norm, norm_placement, .. } = &first.layer;
    let Mixer::Attention(attention) = mixer else { return Some("its layers have no attention") };
    let mlp = match feed_forward {
        FeedForward::Dense(mlp) => mlp,
        FeedForward::Mixture(_) => return Some("it has experts"),
        FeedForward::None => return Some("its layers have no feed-forward blocks"),
    };
    let plain = matches!(
        &transformer.embedding,
        Embedding::Tokens {
            projected_from: None,
            positions: None,
            token_types: None,
            norm: None,
            ..
        }
    );
    let rotation = attention.rotary.as_ref();
    let turns = rotation.is_some_and(|it| {
        it.features.is_none()
            && it.pairs == RotaryPairs::Halves
            && matches!(it.scaling, RotaryScaling::None | RotaryScaling::Llama3 { .. })
    });
    let biases = [attention.query_bias, attention.key_bias, attention.output_bias, mlp.up_bias];
    let heads = attention.num_heads * attention.head_dim == transformer.hidden_size;
    let scales = transformer.scales == Scales::default();
    let checks = [
        (plain, "its embedding"),
        (transformer.encoder.is_none(), "it has an encoder"),
        (norm.kind == NormType::RmsNorm && !norm.unit_offset, "its norms"),
        (*norm_placement == NormPlacement::Pre, "where its norms stand"),
        (
            mlp.gated && mlp.activation == Activation::Silu && mlp.clamp.is_none(),
            "its activation function",
        ),
        (turns, "its positions"),
        (attention.mask == AttentionMask::Causal, "which positions it looks at"),
        (
            attention.latent.is_none() && attention.qk_norm.is_none() && attention.gate.is_none(),
            "its attention",
        ),
        (attention.scores.bias == PositionBias::None && !attention.sinks, "its scores"),
        (!biases.contains(&true), "its biases"),
        (heads, "the width of its heads"),
        (
            scales
                && !transformer.head.bias
                && transformer.head.transform.is_none()
                && !transformer.head.first_token_only,
            "its head or scales",
        ),
    ];
    checks.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what)
}
