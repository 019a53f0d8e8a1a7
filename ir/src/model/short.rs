//! The short form: a plain GPT or Llama, given by its sizes.
//!
//! ```json
//! {"architecture": "gpt", "num_hidden_layers": 96, "hidden_size": 12288, "num_attention_heads": 96,
//!  "vocab_size": 51200, "max_position_embeddings": 2048}
//! ```

use ordered_float::OrderedFloat;
use serde_json::{Map, Value};

use super::error::{ModelError, list};
use super::fields::Fields;

use super::hf::parts::{self, Defaults, Shape};
use super::transformer::{
    Attention, DropoutRates, FeedForward, Mixer, Mlp, Norm, NormPlacement, Transformer,
};

const ARCHITECTURES: &[&str] = &["gpt", "llama"];

const FIELDS: &[&str] = &[
    "architecture",
    "name",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "hidden_act",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
];

/// Required fields.
const NEEDED: &[&str] = &["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"];

/// PyTorch's default epsilon of layer norms.
const NORM_EPSILON: f64 = 1e-5;

/// Llama's default inner width is rounded up to a multiple of this.
const INTERMEDIATE_MULTIPLE: u64 = 256;

/// Reads the architecture that `object` names, and builds its transformer.
pub(super) fn read(object: &Map<String, Value>) -> Result<(String, Transformer), ModelError> {
    let architecture = Fields::new("short form", object).text_or("architecture", "")?;
    if !ARCHITECTURES.contains(&architecture) {
        return Err(ModelError::UnknownArchitecture {
            architecture: architecture.to_owned(),
            known: list(ARCHITECTURES.iter().copied()),
            all: list(ARCHITECTURES.iter().copied()),
        });
    }
    let fields = Fields::new(architecture, object);
    if let Some(unknown) = object.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(ModelError::UnknownField {
            architecture: architecture.to_owned(),
            field: unknown.clone(),
            known: list(FIELDS.iter().copied()),
        });
    }
    if let Some(missing) = NEEDED.iter().find(|field| !object.contains_key(**field)) {
        return Err(fields.missing(missing));
    }
    fields.text_or("name", "")?;
    let transformer = if architecture == "gpt" { gpt(fields)? } else { llama(fields)? };
    Ok((architecture.to_owned(), transformer))
}

/// GPT-2 and 3: learned positions, layer norms, GELU, biases, dropout, a tied head.
fn gpt(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = shape(fields, true)?;
    let norm = Norm::layer(NORM_EPSILON);
    let attention = Attention { rotary: None, ..parts::with_biases(shape.attention(), true) };
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu_new")?, true);
    let rate = OrderedFloat(0.1);
    let layer = parts::layer(
        Mixer::Attention(attention),
        feed_forward(fields, mlp)?,
        norm,
        NormPlacement::Pre,
    );
    Ok(Transformer {
        embedding: shape.embedding(Some(shape.positions(fields)?), None),
        dropout: DropoutRates {
            embedding: rate,
            attention: rate,
            attention_output: rate,
            feed_forward_output: rate,
            ..DropoutRates::default()
        },
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}

/// Llama: rotary embedding, RMS norms, SwiGLU, no biases, an untied head.
fn llama(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let mut shape = shape(fields, false)?;
    if fields.optional_size("intermediate_size")?.is_none() {
        let two_thirds = 8 * shape.hidden_size / 3;
        shape.intermediate_size = two_thirds.next_multiple_of(INTERMEDIATE_MULTIPLE);
    }
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let feed_forward = feed_forward(fields, mlp)?;
    let norm = Norm::rms(NORM_EPSILON);
    let layer =
        parts::layer(Mixer::Attention(shape.attention()), feed_forward, norm, NormPlacement::Pre);
    Ok(shape.decoder(shape.equal_layers(layer), norm))
}

fn shape(fields: Fields<'_>, tie_word_embeddings: bool) -> Result<Shape, ModelError> {
    let defaults = Defaults {
        vocab_size: 0,
        num_attention_heads: 0,
        num_key_value_heads: None,
        head_dim: None,
        intermediate_size: None,
        max_position_embeddings: 2048,
        tie_word_embeddings,
    };
    let shape = Shape::read(fields, defaults)?;
    if fields.optional_size("head_dim")?.is_none() {
        parts::head_dim(fields, shape.hidden_size, shape.num_attention_heads)?;
    }
    Ok(shape)
}

/// The dense block `mlp`, or `num_experts` of it, with inner width `moe_intermediate_size` where given.
fn feed_forward(fields: Fields<'_>, mlp: Mlp) -> Result<FeedForward, ModelError> {
    let Some(num_experts) = fields.optional_size("num_experts")? else {
        for field in ["num_experts_per_tok", "moe_intermediate_size"] {
            if fields.optional_size(field)?.is_some() {
                return Err(fields.unsupported(format!("`{field}` but no `num_experts`")));
            }
        }
        return Ok(FeedForward::Dense(mlp));
    };
    let intermediate_size = fields.size_or("moe_intermediate_size", mlp.intermediate_size)?;
    let top_k = fields.size("num_experts_per_tok")?;
    let expert = Mlp { intermediate_size, ..mlp };
    Ok(FeedForward::Mixture(parts::mixture(num_experts, top_k, expert)))
}
