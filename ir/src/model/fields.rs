//! Typed access to the fields of a configuration: synonyms, defaults, ranges.

use serde_json::{Map, Value};

use super::error::ModelError;
use super::warning::{LookedUpFields, like};
use crate::graph::{Activation, Real};
use crate::text;

/// Largest number of layers of a model.
pub(super) const MOST_LAYERS: u64 = 100_000;
/// Largest value of any other size.
pub(super) const MOST: u64 = 1 << 40;

/// Synonyms of field names in different architectures; each follows the name used here.
const OTHER_NAMES: &[(&str, &[&str])] = &[
    ("hidden_size", &["n_embd", "n_embed", "d_model"]),
    ("num_hidden_layers", &["n_layer", "n_layers", "num_layers", "encoder_layers"]),
    ("num_attention_heads", &["n_head", "n_heads", "num_heads", "encoder_attention_heads"]),
    (
        "num_key_value_heads",
        &["num_kv_heads", "n_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num"],
    ),
    ("head_dim", &["d_kv", "kv_channels"]),
    (
        "intermediate_size",
        &["n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "encoder_ffn_dim", "mlp_hidden_size"],
    ),
    ("vocab_size", &["padded_vocab_size"]),
    ("max_position_embeddings", &["n_positions", "max_seq_len", "n_ctx", "max_target_positions"]),
    ("tie_word_embeddings", &["tie_embedding", "weight_tying"]),
    ("num_experts", &["num_local_experts", "n_routed_experts"]),
    ("n_routed_experts", &["num_local_experts", "num_experts"]),
    ("num_local_experts", &["num_experts", "n_routed_experts"]),
    ("n_shared_experts", &["num_shared_experts"]),
    ("num_experts_per_tok", &["experts_per_token"]),
    ("num_experts_per_token", &["num_experts_per_tok"]),
    ("num_shared_experts", &["n_shared_experts"]),
    ("num_expert_group", &["n_group"]),
    ("moe_renormalize", &["norm_topk_prob"]),
    ("expert_ffn_hidden_size", &["moe_intermediate_size"]),
    ("n_groups", &["mamba_n_groups"]),
    ("conv_kernel", &["mamba_d_conv"]),
    ("use_conv_bias", &["mamba_conv_bias"]),
];

/// Activation functions, by their names in transformers.
const ACTIVATIONS: [(&str, Activation); 15] = [
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("relu", Activation::Relu),
    ("relu2", Activation::SquaredRelu),
    ("xielu", Activation::Xielu),
    ("tanh", Activation::Tanh),
    ("sigmoid", Activation::Sigmoid),
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("quick_gelu", Activation::QuickGelu),
];

/// Fields of one configuration, for an architecture whose name appears in errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    architecture: &'a str,
    object: &'a Map<String, Value>,
    /// The names that were looked up, recorded for warnings.
    looked_up: Option<&'a LookedUpFields>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(architecture: &'a str, object: &'a Map<String, Value>) -> Self {
        Self { architecture, object, looked_up: None }
    }

    /// The fields, with lookups recorded in `looked_up`.
    pub(super) fn noting(self, looked_up: &'a LookedUpFields) -> Self {
        Self { looked_up: Some(looked_up), ..self }
    }

    /// The fields, without a record of lookups.
    pub(super) fn unnoted(self) -> Self {
        Self { looked_up: None, ..self }
    }

    fn note(&self, name: &str) {
        if let Some(looked_up) = self.looked_up {
            looked_up.note([name]);
        }
    }

    fn note_default(&self, name: &str, default: u64) {
        if let Some(looked_up) = self.looked_up {
            looked_up.note_default(name, default);
        }
    }

    /// Records an unknown type of RoPE scaling.
    pub(super) fn note_scaling(&self, name: &str) {
        if let Some(looked_up) = self.looked_up {
            looked_up.note_scaling(name);
        }
    }

    pub(super) fn architecture(&self) -> String {
        self.architecture.to_owned()
    }

    /// Fields of the nested object `name`, if there is one.
    pub(super) fn within(&self, name: &str) -> Option<Self> {
        self.note(name);
        Some(self.of(self.object.get(name)?.as_object()?))
    }

    /// Fields of another object; its lookups are not recorded.
    pub(super) fn of(&self, object: &'a Map<String, Value>) -> Self {
        Self { object, looked_up: None, ..*self }
    }

    /// Fields of the nested object `name`; an error where the value is neither an object nor null.
    pub(super) fn object(&self, name: &str) -> Result<Option<Self>, ModelError> {
        self.note(name);
        match self.object.get(name) {
            None | Some(Value::Null | Value::Object(_)) => Ok(self.within(name)),
            Some(value) => Err(self.wrong_type(name, "an object", value)),
        }
    }

    /// Fields of the first of the objects in `name`, all of which must be equal; `None` where there are none.
    pub(super) fn equal_objects(&self, name: &str) -> Result<Option<Self>, ModelError> {
        let Some(objects) = self.object(name)? else { return Ok(None) };
        let mut all = objects.object.values();
        let Some(first) = all.next() else { return Ok(None) };
        let equal = first.as_object().filter(|_| all.all(|it| it == first));
        let different = || self.unsupported(format!("layers of several kinds in `{name}`"));
        equal.map(|first| Some(self.of(first))).ok_or_else(different)
    }

    /// Number of entries of the nested object `name`, if there is one.
    pub(super) fn num_entries(&self, name: &str) -> Option<u64> {
        self.note(name);
        Some(self.object.get(name)?.as_object()?.len() as u64)
    }

    /// A required size of at least 1.
    pub(super) fn size(&self, name: &str) -> Result<u64, ModelError> {
        let (found, value) = self.find(name).ok_or_else(|| self.missing(name))?;
        self.whole(found, value, 1, MOST)
    }

    /// A size of at least 1, or `default` where the field is absent.
    pub(super) fn size_or(&self, name: &str, default: u64) -> Result<u64, ModelError> {
        self.number_or(name, default, 1)
    }

    /// A count of at least 0, or `default` where the field is absent.
    pub(super) fn count_or(&self, name: &str, default: u64) -> Result<u64, ModelError> {
        self.number_or(name, default, 0)
    }

    /// A size of at least 1, or `None` where the field is absent or null.
    pub(super) fn optional_size(&self, name: &str) -> Result<Option<u64>, ModelError> {
        self.nullable_size_or(name, None)
    }

    /// A size of at least 1, `None` where the field is null, or `default` where it is absent.
    pub(super) fn nullable_size_or(
        &self,
        name: &str,
        default: Option<u64>,
    ) -> Result<Option<u64>, ModelError> {
        match self.find(name) {
            None => {
                if let Some(default) = default {
                    self.note_default(name, default);
                }
                Ok(default)
            }
            Some((_, Value::Null)) => Ok(None),
            Some((found, value)) => self.whole(found, value, 1, MOST).map(Some),
        }
    }

    /// Refuses fields with a negative number, whether or not they are read.
    pub(super) fn refuse_negative(&self, names: &[&str]) -> Result<(), ModelError> {
        let given = names.iter().filter_map(|name| self.object.get_key_value(*name));
        let mut negative =
            given.filter(|(_, value)| value.as_i64().is_some_and(|number| number < 0));
        negative.try_for_each(|(name, value)| self.whole(name, value, 0, MOST).map(|_| ()))
    }

    /// The number of layers.
    pub(super) fn num_layers(&self, name: &str) -> Result<u64, ModelError> {
        let Some((found, value)) = self.find(name) else {
            // A list of the layers tells their number too.
            let listed = ["layers_block_type", "layer_types"].into_iter();
            let mut listed = listed.filter_map(|list| self.texts(list).ok().flatten());
            let count = listed.next().map_or(0, |list| list.len() as u64);
            return if count > 0 { Ok(count) } else { Err(self.missing(name)) };
        };
        self.whole(found, value, 1, MOST_LAYERS)
    }

    /// A boolean, or `default` where the field is absent; null is false, as in Python.
    pub(super) fn flag_or(&self, name: &str, default: bool) -> Result<bool, ModelError> {
        match self.find(name) {
            None => Ok(default),
            Some((_, Value::Null)) => Ok(false),
            Some((_, Value::Bool(flag))) => Ok(*flag),
            Some((found, value)) => Err(self.wrong_type(found, "true or false", value)),
        }
    }

    /// A dropout rate from 0 to 1, or `default` where the field is absent; null is 0.
    pub(super) fn rate_or(&self, name: &str, default: f64) -> Result<Real, ModelError> {
        let is_rate = |rate: &f64| (0.0..=1.0).contains(rate);
        match self.find(name) {
            None => Ok(default.into()),
            Some((_, Value::Null)) => Ok(Real::default()),
            Some((found, value)) => match value.as_f64().filter(is_rate) {
                Some(rate) => Ok(rate.into()),
                None => Err(self.wrong_type(found, "a number from 0 to 1", value)),
            },
        }
    }

    /// A factor, or `None` where the field is 1, absent or null.
    pub(super) fn scale(&self, name: &str) -> Result<Option<Real>, ModelError> {
        Ok(self.optional_real(name)?.filter(|scale| *scale != 1.0))
    }

    /// A number of at least 0, or `None` where the field is absent or null.
    pub(super) fn optional_real(&self, name: &str) -> Result<Option<Real>, ModelError> {
        match self.find(name) {
            None | Some((_, Value::Null)) => Ok(None),
            Some(_) => self.real(name).map(|real| Some(real.into())),
        }
    }

    /// A required list of numbers of at least 0.
    pub(super) fn reals(&self, name: &str) -> Result<Vec<Real>, ModelError> {
        const EXPECTED: &str = "a list of numbers of at least 0";
        let values = self.list(name, EXPECTED)?.ok_or_else(|| self.missing(name))?;
        let real = |value: &Value| {
            let number = value.as_f64().filter(|number| *number >= 0.0);
            number.map(Real::from).ok_or_else(|| self.wrong_type(name, EXPECTED, value))
        };
        values.iter().map(real).collect()
    }

    /// The smallest and the largest number, from a list; a null in it leaves that side open. All numbers from 0 on
    /// where the list is null or absent.
    pub(super) fn limits(&self, name: &str) -> Result<[Real; 2], ModelError> {
        const EXPECTED: &str = "a list of a least and a greatest number, of at least 0";
        let none = [0.0, f64::INFINITY].map(Real::from);
        let (_, [least, most]) = match self.find(name) {
            None | Some((_, Value::Null)) => return Ok(none),
            Some((found, value)) => match value.as_array().map(Vec::as_slice) {
                Some([least, most]) => (found, [least, most]),
                _ => return Err(self.wrong_type(found, EXPECTED, value)),
            },
        };
        let limit = |value: &Value, otherwise: Real| match value {
            Value::Null => Ok(otherwise),
            // transformers 5 writes `{"__float__": "Infinity"}`, as JSON has no such number.
            Value::Object(of) if of.get("__float__").is_some_and(|it| it == "Infinity") => {
                Ok(none[1])
            }
            _ => value
                .as_f64()
                .filter(|number| *number >= 0.0)
                .map(Real::from)
                .ok_or_else(|| self.wrong_type(name, EXPECTED, value)),
        };
        Ok([limit(least, none[0])?, limit(most, none[1])?])
    }

    /// A required number of at least 0.
    pub(super) fn real(&self, name: &str) -> Result<f64, ModelError> {
        let (found, value) = self.find(name).ok_or_else(|| self.missing(name))?;
        let number = value.as_f64().filter(|number| *number >= 0.0);
        number.ok_or_else(|| self.wrong_type(found, "a number of at least 0", value))
    }

    /// A number of at least 0, or `default` where the field is absent or null.
    pub(super) fn real_or(&self, name: &str, default: f64) -> Result<f64, ModelError> {
        match self.find(name) {
            None | Some((_, Value::Null)) => Ok(default),
            Some(_) => self.real(name),
        }
    }

    /// A string, or `default` where the field is absent or null.
    pub(super) fn text_or(&self, name: &str, default: &'a str) -> Result<&'a str, ModelError> {
        match self.find(name) {
            None | Some((_, Value::Null)) => Ok(default),
            Some((_, Value::String(text))) => Ok(text),
            Some((found, value)) => Err(self.wrong_type(found, "a string", value)),
        }
    }

    /// A list of strings, or `None` where the field is absent or null.
    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<&'a str>>, ModelError> {
        let Some(values) = self.list(name, "a list of strings")? else { return Ok(None) };
        let text = |value: &'a Value| {
            value.as_str().ok_or_else(|| self.wrong_type(name, "a list of strings", value))
        };
        values.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// A list of indices, or `None` where the field is absent or null.
    pub(super) fn indices(&self, name: &str) -> Result<Option<Vec<u64>>, ModelError> {
        let Some(values) = self.list(name, "a list of whole numbers")? else { return Ok(None) };
        values
            .iter()
            .map(|value| self.whole(name, value, 0, MOST))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// The side of a square: a number, or a list of two equal ones.
    pub(super) fn square_or(&self, name: &str, default: u64) -> Result<u64, ModelError> {
        match self.find(name) {
            Some((found, value @ Value::Array(sides))) => match sides.as_slice() {
                [a, b] if a == b => self.whole(found, a, 1, MOST),
                _ => Err(self.wrong_type(found, "a number or two equal ones", value)),
            },
            _ => self.size_or(name, default),
        }
    }

    /// An activation function by its name in transformers.
    pub(super) fn activation_or(
        &self,
        name: &str,
        default: &'a str,
    ) -> Result<Activation, ModelError> {
        let word = self.text_or(name, default)?;
        self.activation(name, word)
    }

    /// The activation function called `word`, which is the value of the field `name`.
    pub(super) fn activation(&self, name: &str, word: &str) -> Result<Activation, ModelError> {
        let known = ACTIVATIONS.iter().find(|(known, _)| *known == word).map(|(_, it)| *it);
        known.ok_or_else(|| ModelError::UnknownActivation {
            architecture: self.architecture(),
            field: name.to_owned(),
            value: text::shortened(word),
            known: ACTIVATIONS.map(|(known, _)| format!("`{known}`")).join(", "),
        })
    }

    pub(super) fn missing(&self, field: &str) -> ModelError {
        let architecture = self.architecture();
        let similar = like(field, self.object.keys()).cloned();
        ModelError::MissingField { architecture, field: field.to_owned(), similar }
    }

    pub(super) fn unsupported(&self, variant: String) -> ModelError {
        ModelError::UnsupportedVariant { architecture: self.architecture(), variant }
    }

    pub(super) fn wrong_type(
        &self,
        field: &str,
        expected: &'static str,
        value: &Value,
    ) -> ModelError {
        ModelError::WrongType {
            architecture: self.architecture(),
            field: field.to_owned(),
            expected,
            found: shortened(value),
        }
    }

    /// The value of the field `name` or of a synonym, with the name under which it was found.
    pub(super) fn find(&self, name: &str) -> Option<(&'a str, &'a Value)> {
        let others =
            OTHER_NAMES.iter().find(|(own, _)| *own == name).map_or(&[][..], |(_, others)| *others);
        let names = || std::iter::once(name).chain(others.iter().copied());
        if let Some(looked_up) = self.looked_up {
            looked_up.note(names());
        }
        names()
            .find_map(|name| self.object.get_key_value(name))
            .map(|(name, value)| (name.as_str(), value))
    }

    fn list(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<Option<&'a Vec<Value>>, ModelError> {
        match self.find(name) {
            None | Some((_, Value::Null)) => Ok(None),
            Some((_, Value::Array(values))) => Ok(Some(values)),
            Some((found, value)) => Err(self.wrong_type(found, expected, value)),
        }
    }

    fn number_or(&self, name: &str, default: u64, least: u64) -> Result<u64, ModelError> {
        let Some((found, value)) = self.find(name) else {
            self.note_default(name, default);
            return Ok(default);
        };
        self.whole(found, value, least, MOST)
    }

    fn whole(&self, field: &str, value: &Value, least: u64, most: u64) -> Result<u64, ModelError> {
        let out_of_range = || ModelError::OutOfRange {
            architecture: self.architecture(),
            field: field.to_owned(),
            least,
            most,
            found: shortened(value),
        };
        // A list with an entry for each layer is read if all entries are equal.
        let value = match value {
            Value::Array(all) if all.len() > 1 && all.iter().all(|it| *it == all[0]) => &all[0],
            value => value,
        };
        match value.as_u64() {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            Some(_) => Err(out_of_range()),
            None if value.is_i64() => Err(out_of_range()),
            None => Err(self.wrong_type(field, "a whole number", value)),
        }
    }
}

/// A value as JSON, shortened for a message.
fn shortened(value: &Value) -> String {
    text::shortened(&value.to_string())
}
