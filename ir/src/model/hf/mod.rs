//! Reader of Hugging Face `config.json`, with a data file for each family (`ir/families/`).
//!
//! Builds the same model as the transformers library, version 5.24: the same defaults for absent fields, the same
//! biases and norms. Functions in this folder add what the data of a family cannot express.

mod bert;
mod besides;
mod blocks;
mod decoder;
mod experts;
mod falcon;
mod family;
mod formula;
mod gemma;
mod gpt;
mod heads;
mod latent;
mod longcat;
mod mixers;
mod mpt;
pub(super) mod older;
mod opt;
pub(super) mod parts;

mod stated;
mod t5;
mod tensors;
mod vit;
mod whisper;
mod zamba;

use std::mem;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use self::family::Family;
use self::heads::Outer;
use self::parts::{Finished, Shape};
pub use self::tensors::{Join, TensorForm, TensorModule, TensorNames};
use super::error::{ModelError, list};
use super::fields::Fields;
use super::transformer::{Besides, FeedForward, Transformer};
use super::warning::{LookedUpFields, ModelWarning, STRUCTURAL};

/// Each `model_type` with the text of its file in `families/`, listed by `build.rs`.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/families.rs"));

static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let family =
        |(model_type, _): &(&str, _)| Family::deserialize(Value::Object(with_its_like(model_type)));
    FILES.iter().map(|file| family(file).expect("families are valid; a test reads all")).collect()
});

/// The file of a family as JSON, merged with the file of the family that it is `like`: fields that it does not state
/// are inherited, section by section. A section may itself be `like` that of a third family.
fn with_its_like(model_type: &str) -> Map<String, Value> {
    let file = FILES.iter().find(|(name, _)| *name == model_type);
    let (_, text) = file.expect("families are like others that there are");
    let mut own: Map<String, Value> = serde_json::from_str(text).expect("families are objects");
    for (name, section) in &mut own {
        let Value::Object(section) = section else { continue };
        let Some(Value::String(other)) = section.remove("like") else { continue };
        if let Some(Value::Object(all)) = with_its_like(&other).remove(name) {
            *section = all.into_iter().chain(mem::take(section)).collect();
        }
    }
    let Some(Value::String(other)) = own.remove("like") else { return own };
    let mut family = with_its_like(&other);
    for (name, own) in own {
        match (family.get_mut(&name), own) {
            (Some(Value::Object(section)), Value::Object(own)) => section.extend(own),
            (_, own) => drop(family.insert(name, own)),
        }
    }
    family
}

/// A function that completes a family's transformer with features that its data cannot express.
type Finish = fn(Fields<'_>, &Shape, &mut Transformer) -> Finished;

const FINISHED: &[(&str, Finish)] = &[
    ("Dream", bert::both_ways),
    ("apertus1p5_text", fewer_outputs),
    ("bert", bert::bert),
    ("camembert", bert::roberta),
    ("codegen", gpt::gptj),
    ("deepseek_v4", blocks::compressed),
    ("eurobert", bert::both_ways),
    ("falcon", falcon::falcon),
    ("gemma4_text", gemma::gemma4),
    ("gemma4_unified_text", gemma::unified),
    ("glm_moe_dsa", latent::shared_choices),
    ("gpt2", gpt::gpt2),
    ("gpt_bigcode", gpt::gpt2),
    ("gptj", gpt::gptj),
    ("hy_v4", latent::shared_choices),
    ("kimi_linear", latent::residuals_of_blocks),
    ("lfm2", lfm2),
    ("llada", bert::both_ways),
    ("llada2_moe", bert::both_ways),
    ("longcat_flash", longcat::longcat),
    ("minimax_m3_vl_text", blocks::chosen),
    ("modernbert", bert::modern),
    ("modernbert-decoder", bert::modern_decoder),
    ("mpt", mpt::mpt),
    ("mt5", t5::mt5),
    ("nomic_bert", bert::bert),
    ("opt", opt::opt),
    ("roberta", bert::roberta),
    ("t5", t5::t5),
    ("umt5", t5::umt5),
    ("vit", vit::vit),
    ("whisper", whisper::whisper),
    ("xlm-roberta", bert::roberta),
    ("zamba2", zamba::zamba2),
];

/// LFM2's width of feed-forward blocks: two thirds of the stated width, times a factor, rounded up to the next
/// multiple.
fn lfm2(fields: Fields<'_>, _: &Shape, transformer: &mut Transformer) -> Finished {
    let stated = fields.optional_size("block_ff_dim")?;
    let stated = stated.map_or_else(|| fields.size_or("intermediate_size", 12_288), Ok)?;
    let width = if fields.flag_or("block_auto_adjust_ff_dim", true)? {
        let factor = fields.real_or("block_ffn_dim_multiplier", 1.0)?;
        let width = ((2 * stated / 3) as f64 * factor) as u64;
        width.next_multiple_of(fields.size_or("block_multiple_of", 256)?)
    } else {
        stated
    };
    for layers in &mut transformer.layers {
        if let FeedForward::Dense(mlp) = &mut layers.layer.feed_forward {
            mlp.intermediate_size = width;
        }
    }
    Ok(())
}

/// Apertus 1.5: the last ids of the vocabulary, those of images and sound, may have no outputs.
fn fewer_outputs(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    const FIELD: &str = "output_vocab_size";
    let stated = fields.optional_size(FIELD)?;
    let Some(outputs) = stated.filter(|outputs| *outputs != shape.vocab_size) else {
        return Ok(());
    };
    if outputs > shape.vocab_size || transformer.head.tied {
        return Err(fields.unsupported(format!("`{FIELD}` {outputs}")));
    }
    transformer.head.num_classes = outputs;
    Ok(())
}

/// All supported classes, by family.
pub(super) fn classes() -> impl Iterator<Item = (&'static str, &'static [String])> {
    FAMILIES.iter().map(|family| (family.model_type.as_str(), family.classes.as_slice()))
}

/// Reads the class that `object` names, or the first class of its family, and builds the transformer.
pub(super) fn read(object: &Map<String, Value>) -> Result<Read, ModelError> {
    let mut today = older::of_today(object);
    let model_type = Fields::new("config.json", &today).text_or("model_type", "")?.to_owned();
    let model_type = model_type.as_str();
    // The outer configuration decides whether the head is tied.
    if let Some(tied) = family_of(model_type).and(besides::tied(model_type, &today))
        && let Some(Value::Object(inner)) = today.get_mut("text_config")
    {
        inner.insert(besides::TIED.to_owned(), tied);
    }
    let object = &today;
    let Some(family) = family_of(model_type) else {
        return match besides::counted(model_type, object)? {
            Some(alone) => Err(alone),
            None => language_model(model_type, object),
        };
    };
    let (class, transformer, looked_up) = read_as(family, object)?;
    let mut warnings = looked_up.warnings(model_type, object);
    let is_whole =
        family.within.is_none() || class.ends_with("ForCausalLM") || class.contains("Text");
    let besides = if is_whole { None } else { besides::besides(model_type, object)? };
    if let Some(besides) = &besides {
        warnings.retain(|it| !matches!(it, ModelWarning::NotRead { .. }));
        warnings.insert(0, alone(model_type, &family.model_type, object, Some(besides)));
    }
    Ok(Read { class, transformer, warnings, besides: besides.unwrap_or_default() })
}

/// Result of reading a configuration.
pub(super) struct Read {
    pub(super) class: String,
    pub(super) transformer: Transformer,
    pub(super) warnings: Vec<ModelWarning>,
    /// Parts of a multimodal model other than its language model.
    pub(super) besides: Vec<Besides>,
}

/// A configuration read as one of `family`, with the fields that were looked up meanwhile.
fn read_as(
    family: &'static Family,
    object: &Map<String, Value>,
) -> Result<(String, Transformer, LookedUpFields), ModelError> {
    let model_type = family.model_type.as_str();
    let looked_up = LookedUpFields::default();
    let mut flat = object.clone();
    for section in &family.sections {
        looked_up.note([section.as_str()]);
        let fields = object.get(section).and_then(Value::as_object).into_iter().flatten();
        for (field, value) in fields {
            flat.entry(field.clone()).or_insert_with(|| value.clone());
        }
    }
    let object = &flat;
    let fields = Fields::new(model_type, object).noting(&looked_up);
    fields.refuse_negative(&STRUCTURAL)?;
    let class = heads::class(&family.classes, fields)?;
    let within = family.within.as_ref().and_then(|name| fields.within(name)).unwrap_or(fields);
    let (shape, mut transformer) = family.read(within)?;
    if let Some((_, finish)) = FINISHED.iter().find(|(name, _)| *name == model_type) {
        finish(within, &shape, &mut transformer)?;
    }
    let transformer = match class.task {
        Some(task) => task.head(&family.other_heads, &family.classes[0], fields, transformer)?,
        None => transformer,
    };
    Ok((class.name, transformer, looked_up))
}

/// True if the output of a configuration's class is not its family's logits.
pub(super) fn has_other_head(model_type: &str, object: &Map<String, Value>) -> bool {
    let Some(family) = family_of(model_type) else {
        // Of any language model within.
        return matches!(Outer::of(model_type, object, "ForCausalLM"), Outer::Other(_));
    };
    let class = heads::class(&family.classes, Fields::new(model_type, object));
    class.is_ok_and(|class| class.task.is_some())
}

/// The configuration as one of a known family, and its fields that are then not read, though they may matter.
///
/// # Errors
///
/// [`ModelError`] where there is no such family, or the configuration lacks a field that it needs.
pub(super) fn as_family(
    object: &Map<String, Value>,
    family: &str,
) -> Result<(Map<String, Value>, Vec<String>), ModelError> {
    let Some(known) = family_of(family) else { return Err(unknown(family)) };
    let has_sizes = Fields::new(family, object).find("hidden_size").is_some();
    let inner = nested(object).filter(|_| !has_sizes);
    let mut read = inner.unwrap_or(object).clone();
    read.remove("architectures");
    read.insert("model_type".to_owned(), family.into());
    if let Some(tied) = object.get(besides::TIED) {
        read.insert(besides::TIED.to_owned(), tied.clone());
    }
    let model_type = object.get("model_type").and_then(Value::as_str).unwrap_or_default();
    hand_head_on(model_type, object, known, &mut read);
    let (_, _, looked_up) = read_as(known, &read)?;
    let mut unread = looked_up.unread(&read);
    if inner.is_some() {
        unread.extend(sections(object, &NESTED));
    }
    Ok((read, unread))
}

/// Families that a configuration of an unknown family may be read as, the plainest first.
const PLAIN: [&str; 15] = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen3_moe",
    "qwen2_moe",
    "deepseek_v3",
    "bert",
    "roberta",
    "gpt2",
    "gpt_neox",
    "mamba2",
    "granitemoehybrid",
    "qwen3_next",
];

/// Decoders among these families. A decoder whose parameters are only counted may be read as one of these, chosen by
/// its parameters.
pub(super) const DECODERS: [&str; 4] = ["llama", "mixtral", "qwen3_moe", "deepseek_v3"];

/// The same for encoders that predict masked tokens.
pub(super) const ENCODERS: [&str; 2] = ["bert", "roberta"];

/// Fields that a configuration must have to be offered a family: otherwise the family's defaults would replace them.
const NEEDED: [(&str, &str); 10] = [
    ("bert", "attention_probs_dropout_prob"),
    ("roberta", "attention_probs_dropout_prob"),
    ("deepseek_v3", "kv_lora_rank"),
    ("gpt2", "n_embd"),
    ("granitemoehybrid", "mamba_d_state"),
    ("mamba2", "state_size"),
    ("mixtral", "num_local_experts"),
    ("qwen2_moe", "shared_expert_intermediate_size"),
    ("qwen3_moe", "num_experts"),
    ("qwen3_next", "linear_num_value_heads"),
];

/// Largest number of unread fields with which a family is still offered.
const MOST_UNREAD: usize = 6;

/// The plain family that leaves the fewest fields of a configuration unread, and those fields.
pub(super) fn nearest(object: &Map<String, Value>) -> Option<(&'static str, Vec<String>)> {
    let read = |family: &&'static str| Some((*family, as_family(object, family).ok()?.1));
    let has_sizes = object.contains_key("hidden_size");
    let sizes = nested(object).filter(|_| !has_sizes).unwrap_or(object);
    // In a family that predicts masked tokens, and only there, all layers attend in both directions.
    let is_masked = |class: &str| class.ends_with("ForMaskedLM");
    let named = object.get("architectures").and_then(|classes| classes.get(0)?.as_str());
    let has_needed = |family: &&&str| {
        if named.is_some_and(is_masked) {
            return family_of(family).is_some_and(|family| is_masked(&family.classes[0]));
        }
        let needed = NEEDED.iter().find(|(name, _)| name == *family);
        needed.is_none_or(|(_, field)| sizes.contains_key(*field))
    };
    let nearest =
        PLAIN.iter().filter(has_needed).filter_map(read).min_by_key(|(_, unread)| unread.len());
    nearest.filter(|(_, unread)| unread.len() <= MOST_UNREAD)
}

fn unknown(architecture: &str) -> ModelError {
    ModelError::UnknownArchitecture {
        architecture: architecture.to_owned(),
        known: format!("{} and {} others", list(PLAIN.into_iter()), FAMILIES.len() - PLAIN.len()),
        all: list(FAMILIES.iter().map(|family| family.model_type.as_str())),
    }
}

/// The first class in `architectures`, and the `model_type` of the family with this class.
pub(super) fn named_by_class(object: &Map<String, Value>) -> Option<(&'static str, &'static str)> {
    let named = object.get("architectures")?.get(0)?.as_str()?;
    // A class that several families share belongs to the one whose default it is.
    let of = |place: fn(usize) -> bool| {
        classes().find_map(|(model_type, classes)| {
            let named = classes.iter().position(|class| class == named).filter(|it| place(*it))?;
            Some((&*classes[named], model_type))
        })
    };
    of(|place| place == 0).or_else(|| of(|_| true))
}

/// Part of a family's computation that is not known, if its models can only be planned.
pub(super) fn planned_without(model_type: &str) -> Option<&'static str> {
    family_of(model_type)?.planned_without.as_deref()
}

fn family_of(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_type == model_type)
}

/// Candidate names of tensors in files of an architecture: a class, a `model_type` or the short form's word. The right
/// one is the first with a name for each parameter of a model.
pub fn tensor_names(architecture: &str) -> Vec<TensorNames> {
    let architecture = if architecture == "gpt" { "gpt2" } else { architecture };
    // A class that several families share belongs to the one whose default it is.
    let by_default = FAMILIES.iter().find(|family| family.classes[0] == architecture);
    let has_class = |family: &&Family| family.classes.iter().any(|class| class == architecture);
    let family =
        by_default.or_else(|| family_of(architecture)).or_else(|| FAMILIES.iter().find(has_class));
    let names = |family: &'static Family| {
        let names = |modules| TensorNames::new(&family.classes[0], modules);
        [names(vec![&family.tensors]), names(vec![&family.gated_tensors, &family.tensors])]
    };
    family.into_iter().flat_map(names).collect()
}

/// A `model_type`, its family, and the values that absent fields have.
type Renamed = (&'static str, &'static str, &'static [(&'static str, Value)]);

/// Families of language models that have another `model_type` inside multimodal models. For text alone, their rotation
/// by three axes is the plain rotation.
const LANGUAGE_MODELS: &[Renamed] = &[
    ("exaone4_5_text", "exaone4", &[]),
    ("glm4v_moe_text", "glm4_moe", &[("attention_bias", Value::Bool(true))]),
    ("glm4v_text", "glm4", &[("head_dim", Value::Null)]),
    ("glm_ocr_text", "glm4", &[("attention_bias", Value::Bool(false)), ("head_dim", Value::Null)]),
    ("paddleocr_vl_text", "ernie4_5", &[]),
    ("phi3_v", "phi3", &[]),
    ("phi4_multimodal", "phi3", &[]),
    ("qwen2_vl", "qwen2", &[]),
    ("qwen2_vl_text", "qwen2", &[]),
    ("qwen2_5_omni_text", "qwen2", &[]),
    ("qwen2_5_vl", "qwen2", &[]),
    ("qwen2_5_vl_text", "qwen2", &[]),
    ("qwen3_omni_moe_text", "qwen3_moe", &[]),
    ("qwen3_vl_text", "qwen3", &[]),
    ("qwen3_vl_moe_text", "qwen3_moe", &[("norm_topk_prob", Value::Bool(true))]),
];

/// Sections with the configuration of a language model.
const NESTED: [&str; 3] = ["text_config", "llm_config", "language_config"];

/// The configuration of the language model inside that of another model.
fn nested(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    NESTED.iter().find_map(|name| object.get(*name)?.as_object())
}

/// Sections of parts other than those `but`.
fn sections(object: &Map<String, Value>, but: &[&str]) -> Vec<String> {
    let is_part = |(name, value): &(&String, &Value)| {
        value.is_object() && !but.contains(&name.as_str()) && name.ends_with("_config")
    };
    object.iter().filter(is_part).map(|(name, _)| name.clone()).collect()
}

/// Reads the language model of a known multimodal model; its other parts are not modelled. Its configuration is
/// `text_config`, or in older files the top level itself.
fn language_model(model_type: &str, object: &Map<String, Value>) -> Result<Read, ModelError> {
    let thinker = object.get("thinker_config").and_then(Value::as_object);
    if let Some(thinker) = thinker {
        let mut thinker = thinker.clone();
        thinker.entry("model_type").or_insert_with(|| format!("{model_type}_thinker").into());
        let mut read = read(&thinker)?;
        let parts = sections(object, &["thinker_config"]);
        if !parts.is_empty() {
            let architecture = model_type.to_owned();
            read.warnings.insert(0, ModelWarning::LeftOutParts { architecture, parts });
        }
        return Ok(read);
    }
    let text = nested(object);
    let mut inner = text.unwrap_or(object).clone();
    if let Some(usual) = text.and(besides::text(model_type)) {
        inner.entry("model_type").or_insert_with(|| usual.into());
    }
    // Remote code has classes of its own for known language models.
    if text.is_some() {
        inner.remove("architectures");
    }
    let own = inner.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let renamed = LANGUAGE_MODELS.iter().find(|(name, ..)| *name == own);
    let found = renamed
        .map(|(_, family, _)| *family)
        .or_else(|| text.and(family_of(own)).map(|family| family.model_type.as_str()));
    let Some(family) = found.and_then(family_of) else {
        // Without `text_config.model_type`, the family of the language model is unknown.
        if text.is_some() && own.is_empty() {
            return Err(ModelError::MissingField {
                architecture: model_type.to_owned(),
                field: "text_config.model_type".to_owned(),
                similar: None,
            });
        }
        let architecture = if text.is_some() { own } else { model_type };
        return Err(unknown(architecture));
    };
    if let Some((_, _, defaults)) = renamed {
        for (field, default) in *defaults {
            inner.entry(*field).or_insert_with(|| default.clone());
        }
        inner.insert("model_type".to_owned(), family.model_type.as_str().into());
        for other in ["architectures", "vision_config"] {
            inner.remove(other);
        }
    }
    // A configuration inside another one may leave out fields that have defaults in its class.
    for (field, default) in &family.nested {
        inner.entry(field.clone()).or_insert_with(|| default.clone());
    }
    if let Some(tied) = besides::tied(model_type, object) {
        inner.insert(besides::TIED.to_owned(), tied);
    }
    // An encoder writes no text: detectors have one, and models that compare text with something else.
    if family.classes[0].ends_with("ForMaskedLM") && besides::besides(model_type, object)?.is_none()
    {
        let encoder =
            format!("a `{}` that reads text, which is no language model,", family.model_type);
        return Err(Fields::new(model_type, object).unsupported(encoder));
    }
    let class = hand_head_on(model_type, object, family, &mut inner);
    let mut read = read(&inner)?;
    let besides = besides::besides(model_type, object)?;
    if let Outer::Unknown(class) = class {
        let architecture = model_type.to_owned();
        read.warnings.insert(0, ModelWarning::UnknownClass { architecture, class });
    }
    read.warnings.insert(0, alone(model_type, &family.model_type, object, besides.as_deref()));
    read.besides = besides.unwrap_or_default();
    Ok(read)
}

/// Gives the configuration `inner` of the family `known` the class whose head is that of `object`, and its labels.
fn hand_head_on(
    model_type: &str,
    object: &Map<String, Value>,
    known: &Family,
    inner: &mut Map<String, Value>,
) -> Outer {
    let class = Outer::of(model_type, object, &known.classes[0]);
    if let Outer::Other(class) = &class {
        inner.insert("architectures".to_owned(), [class.as_str()].into_iter().collect());
        for field in ["id2label", "num_labels"] {
            if let Some(labels) = object.get(field) {
                inner.insert(field.to_owned(), labels.clone());
            }
        }
    }
    class
}

/// Warning that only the language model of a multimodal model is planned.
fn alone(
    architecture: &str,
    inner: &str,
    object: &Map<String, Value>,
    besides: Option<&[Besides]>,
) -> ModelWarning {
    ModelWarning::LanguageModelAlone {
        architecture: architecture.to_owned(),
        inner: inner.to_owned(),
        besides: besides.map(|all| all.iter().map(|part| part.num_parameters).sum()),
        parts: sections(object, &NESTED),
    }
}
