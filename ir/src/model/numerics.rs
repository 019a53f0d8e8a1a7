//! The numbers of a model that decide what it computes, but not what that costs: epsilons, angles of
//! rotation, the variant of an activation. The executor needs them; the planner does not.

use serde_json::{Map, Value};

use super::error::ModelError;
use super::fields::Fields;
use super::hf::list;

/// What a model computes, beyond its shapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numerics {
    /// Added to the variance or mean square in norms.
    pub norm_epsilon: f64,
    /// How positions rotate queries and keys.
    pub rotary: RotaryNumerics,
    /// Whether GELU is approximated by a hyperbolic tangent.
    pub gelu_by_tanh: bool,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Whether the weights of the chosen experts are scaled to add up to 1.
    pub normalize_top_k: bool,
    /// Weight of the loss that balances the load of experts.
    pub router_auxiliary_loss: f64,
    /// Share of the elements that dropout zeroes, in native graphs.
    pub dropout_rate: f64,
}

/// How positions rotate queries and keys (Su et al. 2021, arXiv 2104.09864).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryNumerics {
    /// The base: feature pair `i` of `d / 2` turns by `theta^(-2 i / d)` a position.
    pub theta: f64,
    /// How angles are changed for sequences longer than those trained on first.
    pub scaling: RotaryScaling,
}

/// How angles are changed for long sequences, in the words of Hugging Face.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RotaryScaling {
    /// Not at all.
    #[default]
    None,
    /// All divided by `factor`.
    Linear {
        /// By how much.
        factor: f64,
    },
    /// Slow ones divided by `factor`, fast ones kept, and between them a blend (Llama 3.1).
    Llama3 {
        /// By how much.
        factor: f64,
        /// Waves longer than the original length over this are slow.
        low_freq_factor: f64,
        /// Waves shorter than the original length over this are fast.
        high_freq_factor: f64,
        /// The original length.
        original_max_position_embeddings: f64,
    },
}

/// PyTorch's default for its norms.
const PYTORCH_EPSILON: f64 = 1e-5;

/// PyTorch's default, which the torchvision models with dropout have.
const PYTORCH_DROPOUT_RATE: f64 = 0.5;

const DEFAULTS: Numerics = Numerics {
    norm_epsilon: PYTORCH_EPSILON,
    rotary: RotaryNumerics { theta: 10_000.0, scaling: RotaryScaling::None },
    gelu_by_tanh: false,
    initializer_range: 0.02,
    normalize_top_k: true,
    router_auxiliary_loss: 0.0,
    dropout_rate: PYTORCH_DROPOUT_RATE,
};

/// Families of Hugging Face whose numbers are read: the defaults of each where a field is absent.
const FAMILIES: &[(&str, Numerics)] = &[
    ("gpt2", Numerics { gelu_by_tanh: true, ..DEFAULTS }),
    ("llama", Numerics { norm_epsilon: 1e-6, ..DEFAULTS }),
    ("mistral", Numerics { norm_epsilon: 1e-6, ..DEFAULTS }),
    (
        "mixtral",
        Numerics {
            rotary: RotaryNumerics { theta: 1e6, scaling: RotaryScaling::None },
            router_auxiliary_loss: 0.001,
            ..DEFAULTS
        },
    ),
    ("qwen2", Numerics { norm_epsilon: 1e-6, ..DEFAULTS }),
    ("qwen3", Numerics { norm_epsilon: 1e-6, ..DEFAULTS }),
    (
        "qwen3_moe",
        Numerics {
            norm_epsilon: 1e-6,
            normalize_top_k: false,
            router_auxiliary_loss: 0.001,
            ..DEFAULTS
        },
    ),
];

/// Variants that change what a layer computes and that are not computed here, with the value that
/// leaves them out.
const UNSUPPORTED: &[(&str, Value)] = &[
    ("scale_attn_weights", Value::Bool(true)),
    ("scale_attn_by_inverse_layer_idx", Value::Bool(false)),
    ("use_sliding_window", Value::Bool(false)),
    ("partial_rotary_factor", Value::Null),
];

impl Numerics {
    /// The numbers of the model that `object` describes, in any of the three formats.
    ///
    /// # Errors
    ///
    /// [`ModelError`] where the family's computation is not known here, or a variant of it.
    pub(super) fn read(object: &Map<String, Value>) -> Result<Self, ModelError> {
        if object.contains_key("format") {
            return Ok(DEFAULTS);
        }
        if let Some(architecture) = object.get("architecture").and_then(Value::as_str) {
            // GPT-2 approximates by tanh, Megatron's GPT does too.
            return Ok(Self { gelu_by_tanh: architecture == "gpt", ..DEFAULTS });
        }
        let model_type = Fields::new("config.json", object).text_or("model_type", "")?;
        let Some((_, defaults)) = FAMILIES.iter().find(|(name, _)| *name == model_type) else {
            return Err(ModelError::NotRun {
                architecture: model_type.to_owned(),
                known: list(FAMILIES.iter().map(|(name, _)| *name)),
            });
        };
        let fields = Fields::new(model_type, object);
        for (field, absent) in UNSUPPORTED {
            if object.get(*field).is_some_and(|value| value != absent && !value.is_null()) {
                return Err(fields.unsupported(format!("`{field}` {}", object[*field])));
            }
        }
        let activation = fields.text_or("hidden_act", "")?;
        let activation = fields.text_or("activation_function", activation)?;
        let epsilon = if model_type == "gpt2" { "layer_norm_epsilon" } else { "rms_norm_eps" };
        Ok(Self {
            norm_epsilon: fields.real_or(epsilon, defaults.norm_epsilon)?,
            rotary: rotary(fields, defaults.rotary)?,
            gelu_by_tanh: match activation {
                "" => defaults.gelu_by_tanh,
                other => other != "gelu",
            },
            initializer_range: fields.real_or("initializer_range", defaults.initializer_range)?,
            normalize_top_k: fields.flag_or("norm_topk_prob", defaults.normalize_top_k)?,
            router_auxiliary_loss: if fields.flag_or("output_router_logits", false)? {
                fields.real_or("router_aux_loss_coef", defaults.router_auxiliary_loss)?
            } else {
                0.0
            },
            ..*defaults
        })
    }
}

/// Angles, as `rope_theta` and `rope_scaling` or as `rope_parameters`, which later configurations
/// have instead.
fn rotary(fields: Fields<'_>, default: RotaryNumerics) -> Result<RotaryNumerics, ModelError> {
    let parameters = fields.within("rope_parameters");
    let theta = fields.real_or("rope_theta", default.theta)?;
    let theta = parameters.map_or(Ok(theta), |p| p.real_or("rope_theta", theta))?;
    let Some(scaling) = fields.within("rope_scaling").or(parameters) else {
        return Ok(RotaryNumerics { theta, ..default });
    };
    let kind = scaling.text_or("type", "default")?;
    let scaling = match scaling.text_or("rope_type", kind)? {
        "default" => RotaryScaling::None,
        "linear" => RotaryScaling::Linear { factor: scaling.real("factor")? },
        "llama3" => RotaryScaling::Llama3 {
            factor: scaling.real("factor")?,
            low_freq_factor: scaling.real("low_freq_factor")?,
            high_freq_factor: scaling.real("high_freq_factor")?,
            original_max_position_embeddings: scaling.real("original_max_position_embeddings")?,
        },
        other => return Err(fields.unsupported(format!("`rope_type` `{other}`"))),
    };
    Ok(RotaryNumerics { theta, scaling })
}
