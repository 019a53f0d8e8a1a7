//! What may be wrong with the description of a model.

use crate::graph::GraphError;
use crate::native::NativeError;
use crate::text::{folded, json};

/// Where the hint of a fitting divisor starts at most; beyond lies no number of heads.
const MOST_HEADS_TRIED: u64 = 1 << 16;

/// Why a text does not describe a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Nothing but white space.
    #[error("the model description is empty")]
    Empty,
    /// Not JSON.
    #[error("not valid JSON, line {line}, column {column}: {problem}")]
    Json {
        /// What the parser expected or found.
        problem: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// JSON, but a list or a scalar.
    #[error("a model is described by a JSON object, but this is {found}")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// None of the keys by which the three formats are told apart.
    #[error(
        "cannot tell the architecture: `model_type`, `architecture` and `format` are all absent"
    )]
    NoArchitecture {
        /// The class that `architectures` names, and the `model_type` that has it.
        of: Option<(&'static str, &'static str)>,
    },
    /// A Hugging Face `model_type` or short form without a reader.
    #[error(
        "architecture `{architecture}` is not known; known are {known}; any other model can be \
         written as a native graph, with `\"format\": \"planner-graph\"`"
    )]
    UnknownArchitecture {
        /// What was asked for.
        architecture: String,
        /// Those that there are.
        known: String,
    },
    /// A known architecture in a class that has another head.
    #[error("class `{class}` of `{architecture}` is not supported; supported are {supported}")]
    UnsupportedClass {
        /// The architecture.
        architecture: String,
        /// The first of `architectures`.
        class: String,
        /// The classes that are.
        supported: String,
    },
    /// A variant that nothing here can express.
    #[error("`{architecture}` with {variant} is not supported")]
    UnsupportedVariant {
        /// The architecture.
        architecture: String,
        /// Field and value that ask for it.
        variant: String,
    },
    /// A field without which the model is not determined.
    #[error("field `{field}` is missing, which `{architecture}` needs")]
    MissingField {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// A field that is there, with a name much like it.
        similar: Option<String>,
    },
    /// A field that holds the wrong kind of value.
    #[error("field `{field}` of `{architecture}` must be {expected}, but is {found}")]
    WrongType {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// What it must be.
        expected: &'static str,
        /// What it is, as JSON, shortened.
        found: String,
    },
    /// An activation function that is none.
    #[error(
        "`{field}` `{value}` of `{architecture}` is no activation function that is known; known are {known}"
    )]
    UnknownActivation {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// What it holds.
        value: String,
        /// Those that there are.
        known: String,
    },
    /// A field of the short form that does not exist.
    #[error("field `{field}` of `{architecture}` is not known; known are {known}")]
    UnknownField {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// Those that there are.
        known: String,
    },
    /// A number that no model has.
    #[error("field `{field}` of `{architecture}` must be from {least} to {most}, but is {found}")]
    OutOfRange {
        /// The architecture.
        architecture: String,
        /// The field.
        field: String,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
        /// What it is.
        found: String,
    },
    /// A size that must be a multiple of another.
    #[error(
        "`{field}` {value} of `{architecture}` is not a multiple of `{divisor_field}` {divisor}"
    )]
    NotDivisible {
        /// The architecture.
        architecture: String,
        /// What is divided.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it is divided by.
        divisor_field: &'static str,
        /// Its value.
        divisor: u64,
    },
    /// More experts for a token than there are.
    #[error("`{architecture}` sends a token to {top_k} experts, but has {num_experts}")]
    TooFewExperts {
        /// The architecture.
        architecture: String,
        /// Experts for each token.
        top_k: u64,
        /// Experts to choose among.
        num_experts: u64,
    },
    /// More parameters than can be counted.
    #[error("`{architecture}` of these sizes has about {parameters} parameters, more than 2^62")]
    TooLarge {
        /// The architecture.
        architecture: String,
        /// How many, in scientific notation.
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
        /// Which operator, and why.
        #[source]
        source: GraphError,
    },
}

impl ModelError {
    /// What would work instead, where that can be computed.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotDivisible { field, value, divisor_field, divisor, .. } => {
                let most = (*divisor).min(*value).min(MOST_HEADS_TRIED);
                let fitting = (1..=most).rev().find(|n| value % n == 0)?;
                Some(format!("`{divisor_field}` {fitting} divides `{field}` {value}"))
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
            Self::UnknownArchitecture { architecture, known } => {
                let near = || json::nearest_of(architecture, known);
                reads_more(architecture)
                    .or_else(|| near().map(|near| format!("`{near}` is the nearest")))
            }
            Self::UnknownActivation { value, known, .. } => {
                json::nearest_of(value, known).map(|near| format!("`{near}` is the nearest"))
            }
            Self::Native(error) => error.hint(),
            _ => None,
        }
    }
}

/// What is planned of a model that reads more than text, where an architecture is called like one.
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
