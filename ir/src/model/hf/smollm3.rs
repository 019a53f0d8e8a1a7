//! SmolLM3: Llama with layers that know no positions.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{Attention, FeedForward, Norm, NormPlacement, Transformer};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 128_256,
    num_attention_heads: 16,
    num_key_value_heads: Some(4),
    head_dim: None,
    intermediate_size: Some(11_008),
    max_position_embeddings: 32_768,
    tie_word_embeddings: true,
};

pub(super) fn smollm3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?);
    let bias = fields.flag_or("attention_bias", false)?;
    let mlp = parts::with_mlp_biases(
        shape.gated_mlp(fields.activation_or("hidden_act", "silu")?),
        fields.flag_or("mlp_bias", false)?,
    );
    let defaults = RotaryDefaults { theta: 2_000_000.0, ..RotaryDefaults::default() };
    let rotary = rotary::rotation(fields, shape.head_dim, defaults)?;
    let interval = fields.size_or("no_rope_layer_interval", 4)?;
    let rotates = match fields.indices("no_rope_layers")? {
        // Each layer has a 1 where it rotates, a 0 where it does not.
        Some(flags) if flags.len() as u64 >= shape.num_hidden_layers => {
            flags.iter().map(|flag| *flag != 0).collect()
        }
        Some(flags) => {
            let (given, layers) = (flags.len(), shape.num_hidden_layers);
            let what = format!("{given} `no_rope_layers` for {layers} layers");
            return Err(fields.unsupported(what));
        }
        None => (0..shape.num_hidden_layers)
            .map(|index| (index + 1) % interval != 0)
            .collect::<Vec<bool>>(),
    };
    let is_used = fields.flag_or("use_sliding_window", false)?;
    let window = fields.nullable_size_or("sliding_window", None)?.filter(|_| is_used);
    let sliding =
        shape.sliding_layers(fields, |index| window.is_some() && !rotates[index as usize])?;
    let layers = shape.layers(|index| {
        let index = index as usize;
        let attention = Attention {
            rotary: rotates[index].then(|| rotary.clone()),
            mask: parts::mask(window.filter(|_| sliding[index])),
            ..parts::with_biases(shape.attention(), bias)
        };
        parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre)
    });
    Ok(Transformer { dropout: parts::attention_dropout(fields)?, ..shape.decoder(layers, norm) })
}
