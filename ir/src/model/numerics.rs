//! Numbers of a model that its graph does not have: initialization and weights of auxiliary losses.

use serde_json::{Map, Value};

use super::error::ModelError;
use super::fields::Fields;
use super::hf;

/// Initialization and loss weights of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numerics {
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Weight of the load-balancing loss of experts.
    pub router_auxiliary_loss: f64,
}

const DEFAULTS: Numerics = Numerics { initializer_range: 0.02, router_auxiliary_loss: 0.0 };

/// Default weight of the load-balancing loss where a configuration enables it.
const ROUTER_AUXILIARY_LOSS: f64 = 0.001;

impl Numerics {
    /// Reads the numbers of the model that `object` describes, in any of the three formats.
    ///
    /// # Errors
    ///
    /// [`ModelError`] where a value is not a number.
    pub(super) fn read(object: &Map<String, Value>) -> Result<Self, ModelError> {
        let object = &hf::older::of_today(object);
        let Some(model_type) = object.get("model_type").and_then(Value::as_str) else {
            return Ok(DEFAULTS);
        };
        let fields = Fields::new(model_type, object);
        if let Some(what) = hf::planned_without(model_type) {
            return Err(fields.unsupported(what.to_owned()));
        }
        if hf::has_other_head(model_type, object) {
            return Err(fields.unsupported("another head than that of tokens".to_owned()));
        }
        // The library builds sequential layers for Falcon's new architecture, but fails when it runs them.
        if model_type == "falcon"
            && fields.flag_or("new_decoder_architecture", false)?
            && !fields.flag_or("parallel_attn", true)?
        {
            let what = "`new_decoder_architecture` without `parallel_attn`";
            return Err(fields.unsupported(what.to_owned()));
        }
        let balances = fields.flag_or("output_router_logits", false)?;
        Ok(Self {
            initializer_range: fields.real_or("initializer_range", DEFAULTS.initializer_range)?,
            router_auxiliary_loss: if balances {
                fields.real_or("router_aux_loss_coef", ROUTER_AUXILIARY_LOSS)?
            } else {
                0.0
            },
        })
    }
}
