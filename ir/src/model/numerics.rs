//! The numbers of a model that its operators do not have: how weights are drawn, what losses weigh.

use serde_json::{Map, Value};

use super::error::ModelError;
use super::fields::Fields;

/// What training needs of a model beyond its graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numerics {
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Weight of the loss that balances the load of experts.
    pub router_auxiliary_loss: f64,
}

const DEFAULTS: Numerics = Numerics { initializer_range: 0.02, router_auxiliary_loss: 0.0 };

/// Weight of the balancing loss where a configuration asks for one and states none.
const ROUTER_AUXILIARY_LOSS: f64 = 0.001;

impl Numerics {
    /// The numbers of the model that `object` describes, in any of the three formats.
    ///
    /// # Errors
    ///
    /// [`ModelError`] where a number is none.
    pub(super) fn read(object: &Map<String, Value>) -> Result<Self, ModelError> {
        let Some(model_type) = object.get("model_type").and_then(Value::as_str) else {
            return Ok(DEFAULTS);
        };
        let fields = Fields::new(model_type, object);
        // The library builds Falcon's new layers one after the other, but fails when it computes them.
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
