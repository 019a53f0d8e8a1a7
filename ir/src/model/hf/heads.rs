//! Classes whose outputs are not their family's logits: labels, rewards, or the outputs of the last layer.
//!
//! The output of a class follows from the suffix of its name, as transformers names classes of all families; a
//! family's file states which of its classes have a dense layer before the output.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::error::{ModelError, list};
use crate::model::fields::Fields;
use crate::model::transformer::{Encoder, Head, HeadTransform, Scales, Transformer};
use crate::text::folded;

/// Output of a class where it is not logits of tokens.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// The outputs of the last layer.
    Outputs,
    /// Those of an encoder, without the decoder.
    EncoderOutputs,
    /// Labels of sequences.
    Sequences,
    /// Labels of tokens.
    Tokens,
    /// Beginnings and ends of answers.
    Spans,
    /// Which of several sequences is right.
    Choices,
    /// A reward for each token; the reward of a sequence is that of its last token.
    Rewards,
    /// Whether steps are right or wrong.
    StepRewards,
}

/// Ends of the names of classes.
const TASKS: [(&str, Task); 8] = [
    ("Model", Task::Outputs),
    ("EncoderModel", Task::EncoderOutputs),
    ("ForSequenceClassification", Task::Sequences),
    ("ForTokenClassification", Task::Tokens),
    ("ForQuestionAnswering", Task::Spans),
    ("ForMultipleChoice", Task::Choices),
    ("ForRewardModel", Task::Rewards),
    ("ForProcessRewardModel", Task::StepRewards),
];

/// Suffixes of the names of classes with a family's own head.
const OWN: [&str; 9] = [
    "ForCausalLM",
    "ForMaskedLM",
    "ForConditionalGeneration",
    "ForImageClassification",
    "ForSeq2SeqLM",
    "ForVision2Seq",
    "ForVisionText2Text",
    "LMHeadModel",
    "CausalLM",
];

/// Prefix that training libraries add to the name of a class.
const SHARDED: &str = "FSDP";

/// A model with low-rank adapters.
const ADAPTED: &str = "PeftModel";

/// Layers before the labels in a family's classes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OtherHeads {
    /// Dense layers of some classes.
    #[serde(default)]
    dense: Vec<DenseRule>,
    /// True where labels are preceded by the same layers as the family's own head.
    #[serde(default)]
    transformed: bool,
}

/// Dense layer with a bias and an activation, before the output of some classes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DenseRule {
    activation: String,
    /// Outputs of the classes with this layer.
    before: Vec<Task>,
}

/// A class without the prefixes that training libraries add to its name, and its output where that is not the logits
/// of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) task: Option<Task>,
}

/// The first of the `architectures`, which must be one of `classes` or named like one of them; without
/// `architectures`, the first of `classes`.
///
/// # Errors
///
/// [`ModelError::UnsupportedClass`] where it is neither.
pub(super) fn class(classes: &[String], fields: Fields<'_>) -> Result<Class, ModelError> {
    let named = fields.texts("architectures")?.and_then(|classes| classes.first().copied());
    let given = named.unwrap_or(&classes[0]);
    let name = given.strip_prefix(SHARDED).unwrap_or(given);
    let own = |name: &str| Class { name: name.to_owned(), task: None };
    if classes.iter().any(|known| known == name) {
        return Ok(own(name));
    }
    if name.strip_prefix(ADAPTED).is_some_and(|end| OWN.contains(&end)) {
        return Ok(own(&classes[0]));
    }
    let stems = classes.iter().filter_map(|class| stem(class)).chain([ADAPTED]);
    let task = stems.filter_map(|stem| name.strip_prefix(stem)).find_map(|end| {
        // The language model of a multimodal model has a class of its own.
        let end = end.strip_prefix("Text").unwrap_or(end);
        TASKS.iter().find(|(known, _)| *known == end).map(|(_, task)| *task)
    });
    match task {
        Some(task) => Ok(Class { name: name.to_owned(), task: Some(task) }),
        None => Err(ModelError::UnsupportedClass {
            architecture: fields.architecture(),
            class: given.to_owned(),
            supported: list(classes.iter().map(String::as_str)),
        }),
    }
}

/// The name of a class without its end.
fn stem(class: &str) -> Option<&str> {
    OWN.iter().find_map(|end| class.strip_suffix(end))
}

/// The first of a multimodal model's `architectures`, for its language model with the class `inner`.
pub(super) enum Outer {
    /// The language model's own head.
    Own,
    /// The class of the language model that has the same output.
    Other(String),
    /// Unknown.
    Unknown(String),
}

impl Outer {
    pub(super) fn of(model_type: &str, object: &Map<String, Value>, inner: &str) -> Self {
        let named = object.get("architectures").and_then(|classes| classes.get(0)?.as_str());
        let Some(class) = named else { return Self::Own };
        let name = class.strip_prefix(SHARDED).unwrap_or(class);
        if name.ends_with("ChatModel") || stem(name).is_some() {
            return Self::Own;
        }
        let is_like = |stem: &str| folded(stem) == folded(model_type);
        let end = TASKS.iter().find(|(end, task)| match name.strip_suffix(end) {
            // Authors call models with a head so, too.
            Some(stem) => *task != Task::Outputs || is_like(stem),
            None => false,
        });
        match end.zip(stem(inner)) {
            Some(((end, _), stem)) => Self::Other(format!("{stem}{end}")),
            None => Self::Unknown(class.to_owned()),
        }
    }
}

impl Task {
    /// `transformer` with the head of this task in place of the head of the class `own`.
    pub(super) fn head(
        self,
        rule: &OtherHeads,
        own: &str,
        fields: Fields<'_>,
        mut transformer: Transformer,
    ) -> Result<Transformer, ModelError> {
        let has_encoder = transformer.encoder.is_some();
        if self == Self::EncoderOutputs || self == Self::Tokens && has_encoder {
            let Some(Encoder { sound: None, layers, final_norm }) = transformer.encoder.take()
            else {
                return Err(fields.unsupported("an encoder without its decoder".to_owned()));
            };
            transformer = Transformer { layers, final_norm, ..transformer };
        }
        let is_encoder = has_encoder || own.ends_with("ForMaskedLM");
        let activation = |rule: &DenseRule| fields.activation("activation", &rule.activation);
        let dense = rule.dense.iter().find(|rule| rule.before.contains(&self));
        let is_headless = matches!(self, Self::Outputs | Self::EncoderOutputs);
        let transform = match dense.map(activation).transpose()? {
            Some(activation) => Some(HeadTransform { activation, bias: true, norm: None }),
            None if is_headless || !rule.transformed => None,
            None => transformer.head.transform,
        };
        let head = Head {
            num_classes: match self {
                Self::Outputs | Self::EncoderOutputs => transformer.hidden_size,
                Self::Spans if !is_encoder => 2,
                Self::Sequences | Self::Tokens | Self::Spans => num_labels(fields)?,
                Self::Choices | Self::Rewards => 1,
                Self::StepRewards => 2,
            },
            tied: false,
            bias: match self {
                Self::Outputs | Self::EncoderOutputs => false,
                Self::Sequences => is_encoder,
                Self::Tokens | Self::Spans | Self::Choices => true,
                Self::Rewards | Self::StepRewards => transform.is_some(),
            },
            transform,
            first_token_only: is_headless
                || is_encoder && matches!(self, Self::Sequences | Self::Choices),
            is_missing: is_headless,
            projected_to: transformer.head.projected_to,
        };
        let scales = Scales { logits: None, logit_soft_cap: None, ..transformer.scales };
        Ok(Transformer { head, scales, prediction_modules: Vec::new(), ..transformer })
    }
}

/// Number of a classifier's labels.
pub(super) fn num_labels(fields: Fields<'_>) -> Result<u64, ModelError> {
    match fields.num_entries("id2label") {
        Some(labels) => Ok(labels),
        None => fields.size_or("num_labels", 2),
    }
}
