//! Warnings about a configuration that is accepted but probably has mistakes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::error::list;
use crate::text::shortened;

/// A probable mistake in the description of a model that is nevertheless accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelWarning {
    /// An unread field with a name similar to that of a field that is read.
    Misspelt {
        /// The field.
        field: String,
        /// The name that is read.
        known: String,
    },
    /// A structural field that is not read for this architecture.
    NotRead {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
    },
    /// A multimodal model, of which only the language model is known.
    LanguageModelAlone {
        /// The architecture.
        architecture: String,
        /// The architecture of its language model.
        inner: String,
        /// Parameters of its other parts, where they are known.
        besides: Option<u64>,
        /// Sections of its other parts.
        parts: Vec<String>,
    },
    /// Parts of a model other than the part that is read.
    LeftOutParts {
        /// The architecture.
        architecture: String,
        /// Sections of these parts.
        parts: Vec<String>,
    },
    /// A multimodal model in a class that is not known.
    UnknownClass {
        /// The architecture.
        architecture: String,
        /// The first of `architectures`.
        class: String,
    },
    /// A configuration of an unknown family, read as one of a known family.
    ReadAs {
        /// The family.
        family: String,
        /// Fields that were not read, though they may matter.
        unread: Vec<String>,
    },
    /// An unknown number type; the precision of training does not depend on it.
    UnknownType {
        /// The field.
        field: String,
        /// The value of the field.
        value: String,
    },
    /// An unknown type of RoPE scaling; costs do not depend on it.
    UnknownScaling {
        /// Name of the scaling.
        scaling: String,
    },
    /// A field that occurs several times.
    Repeated {
        /// The field.
        field: String,
    },
    /// A missing size, replaced by the default of the transformers library.
    LeftOut {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// The default.
        default: u64,
    },
}

impl fmt::Display for ModelWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misspelt { field, known } => {
                write!(f, "field `{field}` is not read; `{known}` would be")
            }
            Self::NotRead { architecture, field } => write!(
                f,
                "field `{field}` is not read of `{architecture}`: the model is planned without it"
            ),
            Self::LanguageModelAlone { architecture, inner, besides: Some(besides), .. } => write!(
                f,
                "`{architecture}` is planned as its language model alone, which is a `{inner}`: what reads images or sound \
                 has {besides} parameters more, whose time and memory are in no step"
            ),
            Self::LanguageModelAlone { architecture, inner, besides: None, parts } => {
                write!(
                    f,
                    "`{architecture}` is counted and planned as its language model alone, which is a `{inner}`: what \
                     reads images or sound is left out"
                )?;
                let sections = list(parts.iter().map(String::as_str));
                if parts.is_empty() { Ok(()) } else { write!(f, ", and {sections} not read") }
            }
            Self::LeftOutParts { architecture, parts } => {
                let parts = list(parts.iter().map(String::as_str));
                write!(f, "`{architecture}` is counted and planned without {parts}")
            }
            Self::UnknownClass { architecture, class } => write!(
                f,
                "class `{class}` of `{architecture}` is not known: its language model is planned with the head that \
                 predicts tokens"
            ),
            Self::ReadAs { family, unread } if unread.is_empty() => {
                write!(f, "read as `{family}`, which has all of its fields")
            }
            Self::ReadAs { family, unread } => {
                let unread = list(unread.iter().map(String::as_str));
                write!(f, "read as `{family}`, and planned without {unread}")
            }
            Self::UnknownType { field, value } => write!(
                f,
                "`{field}` is {value}, which is no type of numbers; known are float32, float16, bfloat16, float64 and \
                 types of float8"
            ),
            Self::UnknownScaling { scaling } => write!(
                f,
                "positions are scaled by `{scaling}`, which is not known: time and memory are the same, but it cannot be \
                 executed; known are default, linear, dynamic, llama3, yarn and longrope"
            ),
            Self::Repeated { field } => {
                write!(f, "field `{field}` is there more than once; the last one counts")
            }
            Self::LeftOut { architecture, field, default } => write!(
                f,
                "field `{field}` is left out, so it is {default}, which the transformers library has for `{architecture}`"
            ),
        }
    }
}

/// Structural fields; readers look them up for all families that have them.
pub(super) const STRUCTURAL: [&str; 24] = [
    "attention_bias",
    "attention_other_setting",
    "attn_res_block_size",
    "audio_config",
    "indexer_types",
    "kv_lora_rank",
    "linear_attn_config",
    "mlp_bias",
    "mlp_layer_types",
    "moe_layer_freq",
    "n_routed_experts",
    "n_shared_experts",
    "num_attention_heads_per_layer",
    "num_experts",
    "num_local_experts",
    "num_nextn_predict_layers",
    "num_shared_experts",
    "q_lora_rank",
    "qkv_bias",
    "quantization_config",
    "sliding_window",
    "sparse_attention_config",
    "use_bias",
    "vision_config",
];

/// Counts of which one is more than none.
const COUNTS: [&str; 3] = ["first_k_dense_replace", "n_shared_experts", "num_shared_experts"];

/// Sizes that the configurations of all released models state, where their family has them.
const STATED: [&str; 3] = ["intermediate_size", "num_attention_heads", "vocab_size"];

/// Fields of Hugging Face configurations that affect no cost.
const WITHOUT_COST: [&str; 17] = [
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "dtype",
    "id2label",
    "initializer_range",
    "label2id",
    "model_type",
    "name",
    "output_router_logits",
    "pretraining_tp",
    "router_aux_loss_coef",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
];

/// Known number types in PyTorch's names, with or without `torch.`.
const TYPES: [&str; 8] =
    ["auto", "bfloat16", "double", "float", "float16", "float32", "float64", "half"];

/// Record of the fields that a reader looked up in a configuration.
#[derive(Debug, Default)]
pub(super) struct LookedUpFields {
    names: RefCell<BTreeSet<String>>,
    defaults: RefCell<BTreeMap<String, u64>>,
    scalings: RefCell<BTreeSet<String>>,
}

impl LookedUpFields {
    /// Records names of a field that was looked up.
    pub(super) fn note<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        self.names.borrow_mut().extend(names.into_iter().map(str::to_owned));
    }

    /// Records a size that was absent.
    pub(super) fn note_default(&self, name: &str, default: u64) {
        // A default of 1 stands for a feature that the family lacks, such as a vision transformer's vocabulary.
        if STATED.contains(&name) && default > 1 {
            self.defaults.borrow_mut().insert(name.to_owned(), default);
        }
    }

    /// Records an unknown type of RoPE scaling.
    pub(super) fn note_scaling(&self, name: &str) {
        self.scalings.borrow_mut().insert(name.to_owned());
    }

    /// Fields of a configuration that were not looked up, though their values may matter.
    pub(super) fn unread(&self, object: &Map<String, Value>) -> Vec<String> {
        let names = self.names.borrow();
        let is_read = |field: &str| {
            names.contains(field)
                || WITHOUT_COST.contains(&field)
                || ["_token_id", "_index"].iter().any(|end| field.ends_with(end))
        };
        let says = |field: &str, value: &Value| {
            !says_nothing(value) || COUNTS.contains(&field) && *value == 1
        };
        let left = object.iter().filter(|(field, value)| !is_read(field) && says(field, value));
        left.map(|(field, _)| field.clone()).collect()
    }

    /// Warnings about the configuration that was read.
    pub(super) fn warnings(
        self,
        architecture: &str,
        object: &Map<String, Value>,
    ) -> Vec<ModelWarning> {
        let names = self.names.into_inner();
        let mut warnings = Vec::new();
        for (field, value) in object.iter().filter(|(field, _)| !names.contains(*field)) {
            let (architecture, field) = (architecture.to_owned(), field.clone());
            if STRUCTURAL.contains(&field.as_str()) {
                if !says_nothing(value) {
                    warnings.push(ModelWarning::NotRead { architecture, field });
                }
            } else if let Some(known) = like(&field, names.iter()) {
                warnings.push(ModelWarning::Misspelt { field, known: known.clone() });
            }
        }
        for field in ["torch_dtype", "dtype"] {
            let Some(value) = object.get(field) else { continue };
            let text = value.as_str().unwrap_or_default();
            let plain = text.strip_prefix("torch.").unwrap_or(text);
            let is_known = TYPES.contains(&plain) || plain.starts_with("float8");
            if !is_known && !value.is_null() {
                let (field, value) = (field.to_owned(), shortened(&value.to_string()));
                warnings.push(ModelWarning::UnknownType { field, value });
            }
        }
        let scalings = self.scalings.into_inner().into_iter();
        warnings.extend(scalings.map(|scaling| {
            let scaling = shortened(&scaling);
            ModelWarning::UnknownScaling { scaling }
        }));
        let left_out = self.defaults.into_inner().into_iter();
        warnings.extend(left_out.map(|(field, default)| {
            let architecture = architecture.to_owned();
            ModelWarning::LeftOut { architecture, field, default }
        }));
        warnings
    }
}

/// Warnings about fields that occur several times in a JSON text; parsers use the last occurrence.
pub(super) fn repeated(text: &str) -> Vec<ModelWarning> {
    let Names(names) = serde_json::from_str(text).unwrap_or_default();
    let fields = names.into_iter().filter(|(_, times)| *times > 1);
    fields.map(|(field, _)| ModelWarning::Repeated { field: shortened(&field) }).collect()
}

/// Number of occurrences of each name in an object.
#[derive(Default)]
struct Names(BTreeMap<String, u64>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;
        impl<'de> Visitor<'de> for Counting {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                let mut names = BTreeMap::new();
                while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
                    *names.entry(name).or_default() += 1;
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_map(Counting)
    }
}

/// Returns whether a value means that the model lacks the feature: null, false, at most 1, or empty.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64().is_some_and(|number| number <= 1.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Returns the name that `field` probably misspells: one edit apart, or up to two edits for long names.
pub(super) fn like<'n>(field: &str, names: impl Iterator<Item = &'n String>) -> Option<&'n String> {
    let most = match field.len() {
        0..6 => return None,
        6..14 => 1,
        _ => 2,
    };
    let distances = names.map(|name| (strsim::osa_distance(field, name), name));
    let nearest = distances.filter(|(distance, _)| (1..=most).contains(distance)).min()?;
    Some(nearest.1)
}
