//! Model descriptions, and their graphs.
//!
//! Three formats, distinguished by their top-level keys: a Hugging Face `config.json` (`model_type`), a short form
//! (`architecture`), and a native graph (`format`).

mod error;
mod fields;
mod hf;
mod lower;
mod norm;
mod numerics;
mod recurrences;
mod rotary;
mod short;
pub mod transformer;
mod validate;
mod warning;

use serde_json::{Map, Value};

pub use error::ModelError;
pub use hf::{Join, TensorForm, TensorModule, TensorNames, tensor_names};
pub use lower::{AttentionKernel, GraphOptions};
pub use numerics::Numerics;
pub use transformer::{Besides, Transformer};
pub use warning::ModelWarning;

use crate::graph::{AdapterError, Adapters, Graph, GraphError};
use crate::text::{json, printable, printable_value};

/// A model with its name and description.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name from the description, or else the given fallback.
    pub name: String,
    /// Class in transformers, such as `LlamaForCausalLM`, or the word of the short form.
    pub architecture: String,
    /// The transformer or graph.
    pub description: Description,
    /// Parts of a multimodal model other than its language model: their parameters are counted, but they are not
    /// planned.
    pub besides: Vec<Besides>,
    /// Warnings about possible mistakes in the description.
    pub warnings: Vec<ModelWarning>,
}

/// A model's structure.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Description {
    /// A transformer, given by its sizes.
    Transformer(Box<Transformer>),
    /// Any model, given by its operators.
    Graph(Graph),
}

/// Name of the language model among the parts of a model whose parameters are only counted.
const LANGUAGE_MODEL: &str = "language model";

impl Model {
    /// Reads a model from JSON. `fallback_name` is its name unless the text has a field `name`.
    ///
    /// Absent fields of a Hugging Face configuration have the defaults of the transformers library, except for the
    /// width and the number of layers, which are required: a configuration without them is a mistake. A returned model
    /// has a graph under all options, and its parameters can be counted without overflow.
    ///
    /// # Errors
    ///
    /// [`ModelError`] where the text does not describe a model that can be built.
    pub fn from_json(text: &str, fallback_name: &str) -> Result<Self, ModelError> {
        let object = parse(text)?;
        let name = object.get("name").and_then(Value::as_str).unwrap_or(fallback_name);
        let name = printable(name).into_owned();
        if object.contains_key("format") {
            let (name, graph) = crate::native::read(text)?;
            let architecture = "native graph".to_owned();
            let description = Description::Graph(graph);
            let (besides, warnings) = (Vec::new(), Vec::new());
            return Ok(Self { name, architecture, description, besides, warnings });
        }
        let read = if object.contains_key("model_type") {
            hf::read(&object)?
        } else if object.contains_key("architecture") {
            let (class, transformer) = short::read(&object)?;
            hf::Read { class, transformer, warnings: Vec::new(), besides: Vec::new() }
        } else {
            return Err(ModelError::NoArchitecture { of: hf::named_by_class(&object) });
        };
        let hf::Read { class: architecture, transformer, mut warnings, besides } = read;
        validate::check(&transformer, &architecture)?;
        warnings.extend(warning::repeated(text));
        Ok(Self {
            name,
            architecture,
            description: Description::Transformer(Box::new(transformer)),
            besides,
            warnings,
        })
    }

    /// Rewrites the Hugging Face configuration `text` as one of the family `family`. Also returns the fields that are
    /// then not read, though they may matter.
    ///
    /// # Errors
    ///
    /// [`ModelError`] where there is no such family, or the configuration lacks a field that it needs.
    pub fn as_family(text: &str, family: &str) -> Result<(String, Vec<String>), ModelError> {
        let (object, unread) = hf::as_family(&parse(text)?, family)?;
        Ok((Value::Object(object).to_string(), unread))
    }

    /// The plain family that leaves the fewest fields of the Hugging Face configuration `text` unread, and those
    /// fields.
    pub fn nearest_family(text: &str) -> Option<(&'static str, Vec<String>)> {
        hf::nearest(&parse(text).ok()?)
    }

    /// A plain family that can stand for a model whose parameters are only counted, with two parameter counts: the
    /// family's and the counted one. Candidates are families that give the language model, or the encoder, its number
    /// of parameters to within a twentieth; of these, the one that leaves the fewest fields unread is returned.
    pub fn family_by_size(text: &str, error: &ModelError) -> Option<(&'static str, [u64; 2])> {
        let ModelError::CountedAlone { class, parts, .. } = error else { return None };
        let is_encoder = class.ends_with("ForMaskedLM");
        let of_text = parts.iter().filter(|part| is_encoder || part.name == LANGUAGE_MODEL);
        let counted: u64 = of_text.map(|part| part.num_parameters).sum();
        let object = parse(text).ok().filter(|_| counted > 0)?;
        let read = |family: &'static str| {
            let (object, unread) = hf::as_family(&object, family).ok()?;
            let has_latents = object.contains_key("kv_lora_rank");
            if family == "deepseek_v3" && !has_latents {
                return None;
            }
            let model = Self::from_json(&Value::Object(object).to_string(), family).ok()?;
            let total = model.graph(GraphOptions::default()).ok()?.parameter_counts().total;
            Some((family, total, unread.len()))
        };
        let families: &[&str] = if is_encoder { &hf::ENCODERS } else { &hf::DECODERS };
        let all = families.iter().filter_map(|family| read(family));
        let alike = all.filter(|(_, total, _)| total.abs_diff(counted) <= counted / 20);
        let nearest = alike.min_by_key(|(_, total, unread)| (*unread, total.abs_diff(counted)));
        nearest.map(|(family, total, _)| (family, [total, counted]))
    }

    /// The family whose name is spelled most like the unknown one, if it can read the configuration `text`.
    pub fn family_by_name(text: &str, error: &ModelError) -> Option<String> {
        let ModelError::UnknownArchitecture { architecture, all, .. } = error else { return None };
        let nearest = json::nearest_of(architecture, all)?;
        let object = parse(text).ok()?;
        hf::as_family(&object, nearest).is_ok().then(|| nearest.to_owned())
    }

    /// Initialization and loss weights of the model that `text` describes; its graph does not contain them.
    ///
    /// # Errors
    ///
    /// [`ModelError`] where the text describes no model, or a model whose computation is not known in every detail,
    /// even if its costs are known.
    pub fn numerics(text: &str) -> Result<Numerics, ModelError> {
        Numerics::read(&parse(text)?)
    }

    /// Longest sequence that the model was made for, where known.
    pub fn max_position_embeddings(&self) -> Option<u64> {
        match &self.description {
            Description::Transformer(transformer) => transformer.max_position_embeddings,
            Description::Graph(_) => None,
        }
    }

    /// Graph of the model in training; with adapters, its own parameters are frozen.
    ///
    /// # Errors
    ///
    /// [`AdapterError`] where the model does not support the adapters.
    pub fn training_graph(
        &self,
        options: GraphOptions,
        adapters: Option<&Adapters>,
    ) -> Result<Graph, AdapterError> {
        let graph = self.graph(options)?;
        adapters.map_or(Ok(graph.clone()), |adapters| graph.with_adapters(adapters))
    }

    /// Graph of the model's operators, from data to loss.
    ///
    /// # Errors
    ///
    /// [`GraphError`] where operators do not fit each other; never for a model that
    /// [`Self::from_json`] returned.
    pub fn graph(&self, options: GraphOptions) -> Result<Graph, GraphError> {
        match &self.description {
            Description::Transformer(transformer) => {
                Ok(lower::lower(transformer, options)?.of_class(&self.architecture))
            }
            Description::Graph(graph) => Ok(graph.clone()),
        }
    }
}

/// A supported architecture.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct KnownArchitecture {
    /// The `model_type` of a Hugging Face configuration.
    pub model_type: &'static str,
    /// The supported classes of that type.
    pub classes: &'static [String],
}

/// Returns all supported architectures.
pub fn known_architectures() -> Vec<KnownArchitecture> {
    hf::classes().map(|(model_type, classes)| KnownArchitecture { model_type, classes }).collect()
}

fn parse(text: &str) -> Result<Map<String, Value>, ModelError> {
    if text.trim().is_empty() {
        return Err(ModelError::Empty);
    }
    let value: Value = json::read(text).map_err(ModelError::Json)?;
    match printable_value(value) {
        Value::Object(object) => Ok(object),
        Value::Null => Err(ModelError::NotAnObject { found: "null" }),
        Value::Bool(_) => Err(ModelError::NotAnObject { found: "a truth value" }),
        Value::Number(_) => Err(ModelError::NotAnObject { found: "a number" }),
        Value::String(_) => Err(ModelError::NotAnObject { found: "a string" }),
        Value::Array(_) => Err(ModelError::NotAnObject { found: "a list" }),
    }
}
