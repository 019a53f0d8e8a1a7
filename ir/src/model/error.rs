//! Errors of reading a model's description.

use super::transformer::Besides;
use crate::graph::GraphError;
use crate::native::NativeError;
use crate::text::{folded, json};

/// Largest divisor tried for a hint; no model has this number of heads.
const MOST_HEADS_TRIED: u64 = 1 << 16;

/// Errors of a text that does not describe a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// An empty text, or only white space.
    #[error("the model description is empty")]
    Empty,
    /// Text that is not valid JSON.
    #[error("not valid JSON, {0}")]
    Json(json::JsonError),
    /// A JSON list or scalar where an object is expected.
    #[error("a model is described by a JSON object, but this is {found}")]
    NotAnObject {
        /// Kind of the JSON value.
        found: &'static str,
    },
    /// None of the keys that distinguish the three formats.
    #[error(
        "cannot tell the architecture: `model_type`, `architecture` and `format` are all absent"
    )]
    NoArchitecture {
        /// The class in `architectures`, and the `model_type` that has this class, if one does.
        of: Option<(&'static str, &'static str)>,
    },
    /// A Hugging Face `model_type` or short form without a reader.
    #[error(
        "architecture `{architecture}` is not known; known are {known}; any other model can be \
         written as a native graph, with `\"format\": \"planner-graph\"`"
    )]
    UnknownArchitecture {
        /// The architecture that was given.
        architecture: String,
        /// The known architectures, of which the plainest are named.
        known: String,
        /// List of all.
        all: String,
    },
    /// A family whose parameters are counted, but which has no graph to plan.
    #[error("`{architecture}` is counted, but not planned: {why}")]
    CountedAlone {
        /// The architecture.
        architecture: String,
        /// The class that was counted.
        class: String,
        /// Operators or facts that a graph would need.
        why: String,
        /// Parts with their parameters.
        parts: Vec<Besides>,
    },
    /// A known architecture, with a class that has another head.
    #[error("class `{class}` of `{architecture}` is not supported; supported are {supported}")]
    UnsupportedClass {
        /// The architecture.
        architecture: String,
        /// The first of `architectures`.
        class: String,
        /// List of the supported classes.
        supported: String,
    },
    /// A variant of an architecture that the graph cannot represent.
    #[error("`{architecture}` with {variant} is not supported")]
    UnsupportedVariant {
        /// The architecture.
        architecture: String,
        /// Field and value that select the variant.
        variant: String,
    },
    /// A missing field that is needed to determine the model.
    #[error("field `{field}` is missing, which `{architecture}` needs")]
    MissingField {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// A field of the object with a similar name.
        similar: Option<String>,
    },
    /// A field with a value of the wrong type.
    #[error("field `{field}` of `{architecture}` must be {expected}, but is {found}")]
    WrongType {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// The expected type.
        expected: &'static str,
        /// The value found, as JSON, shortened.
        found: String,
    },
    /// An activation function with an unknown name.
    #[error(
        "`{field}` `{value}` of `{architecture}` is no activation function that is known; known are {known}"
    )]
    UnknownActivation {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// The value of the field.
        value: String,
        /// List of the known activation functions.
        known: String,
    },
    /// An unknown field of the short form.
    #[error("field `{field}` of `{architecture}` is not known; known are {known}")]
    UnknownField {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// List of the known fields.
        known: String,
    },
    /// A number outside the plausible range.
    #[error("field `{field}` of `{architecture}` must be from {least} to {most}, but is {found}")]
    OutOfRange {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// The smallest allowed value.
        least: u64,
        /// The largest allowed value.
        most: u64,
        /// The value found, as JSON.
        found: String,
    },
    /// A size that must be a multiple of another.
    #[error(
        "`{field}` {value} of `{architecture}` is not a multiple of `{divisor_field}` {divisor}"
    )]
    NotDivisible {
        /// The architecture.
        architecture: String,
        /// Field that must be a multiple.
        field: &'static str,
        /// Value of that field.
        value: u64,
        /// Field that must divide it.
        divisor_field: &'static str,
        /// Value of the divisor.
        divisor: u64,
    },
    /// More experts per token than the layer has.
    #[error("`{architecture}` sends a token to {top_k} experts, but has {num_experts}")]
    TooFewExperts {
        /// The architecture.
        architecture: String,
        /// Number of experts for each token, top-k.
        top_k: u64,
        /// Number of routed experts.
        num_experts: u64,
    },
    /// More parameters than can be counted.
    #[error("`{architecture}` of these sizes has about {parameters} parameters, more than 2^62")]
    TooLarge {
        /// The architecture.
        architecture: String,
        /// Number of parameters, in scientific notation.
        parameters: String,
    },
    /// A native graph that cannot be read.
    #[error(transparent)]
    Native(#[from] NativeError),
    /// Operators that do not fit each other.
    #[error("`{architecture}` does not fit together")]
    Graph {
        /// The architecture.
        architecture: String,
        /// Error of the operator that does not fit.
        #[source]
        source: GraphError,
    },
}

impl ModelError {
    /// Returns a hint that names a working alternative, where one can be computed.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotDivisible { field, value, divisor_field, divisor, .. } => {
                let most = (*divisor).min(*value).min(MOST_HEADS_TRIED);
                let fitting = (1..=most).rev().find(|n| value % n == 0)?;
                Some(format!("`{divisor_field}` {fitting} divides `{field}` {value}"))
            }
            Self::CountedAlone { parts, .. } => {
                let total: u64 = parts.iter().map(|part| part.num_parameters).sum();
                Some(format!("`planner inspect` counts it: {total} parameters"))
            }
            Self::MissingField { field, similar, .. } => {
                similar.as_ref().map(|similar| format!("`{similar}` is there; `{field}` is read"))
            }
            Self::TooFewExperts { num_experts, .. } => {
                Some(format!("`num_experts_per_tok` may be at most {num_experts}"))
            }
            Self::NoArchitecture { of: Some((class, model_type)) } => {
                Some(format!("`{class}` is of `\"model_type\": \"{model_type}\"`"))
            }
            Self::NoArchitecture { of: None } => Some(
                "a Hugging Face `config.json` has `model_type`, the short form `architecture` \
                 (`gpt` or `llama`), a native graph `format`"
                    .to_owned(),
            ),
            Self::UnknownArchitecture { architecture, .. } => reads_more(architecture),
            Self::UnknownActivation { value, known, .. } => {
                json::nearest_of(value, known).map(|nearest| format!("`{nearest}` is the nearest"))
            }
            Self::Native(error) => error.hint(),
            _ => None,
        }
    }
}

/// Hint for an unknown architecture that has the name of a multimodal model.
fn reads_more(architecture: &str) -> Option<String> {
    const PARTS: [&str; 9] =
        ["llava", "vl", "vision", "image", "audio", "speech", "omni", "paligemma", "idefics"];
    let folded = folded(architecture);
    PARTS.iter().any(|part| folded.contains(part)).then(|| {
        "of a model that reads more than text the language model is planned, which `text_config` describes by a \
         `model_type` of its own; here is none"
            .to_owned()
    })
}

/// Words in backticks, separated by commas.
pub(super) fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
