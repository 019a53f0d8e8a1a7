//! Readers of Hugging Face `config.json`, a file for each family.
//!
//! Each builds what the transformers library, version 4.57, builds: the same defaults for absent
//! fields, the same biases and norms.

mod bert;
mod bloom;
mod cohere;
mod deepseek;
mod dots1;
mod falcon;
mod gemma;
mod glm;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod llama;
mod minimax;
mod mistral;
mod mpt;
mod olmo;
mod opt;
pub(super) mod parts;
mod phi;
mod qwen;
mod smollm3;
mod starcoder2;
mod t5;
mod vit;

use serde_json::{Map, Value};

use super::error::ModelError;
use super::fields::Fields;
use super::transformer::Transformer;
use super::warning::{Asked, ModelWarning};

type Reader = fn(Fields<'_>) -> Result<Transformer, ModelError>;

/// A `model_type`: its name, the classes whose head is built, the first by default, and its reader.
struct Family {
    model_type: &'static str,
    classes: &'static [&'static str],
    read: Reader,
}

const fn family(
    model_type: &'static str,
    classes: &'static [&'static str],
    read: Reader,
) -> Family {
    Family { model_type, classes, read }
}

const FAMILIES: &[Family] = &[
    family("bert", &["BertForMaskedLM", "BertLMHeadModel"], bert::bert),
    family("bloom", &["BloomForCausalLM"], bloom::bloom),
    family("cohere", &["CohereForCausalLM"], cohere::cohere),
    family("cohere2", &["Cohere2ForCausalLM"], cohere::cohere2),
    family("deepseek_v2", &["DeepseekV2ForCausalLM"], deepseek::deepseek_v2),
    family("deepseek_v3", &["DeepseekV3ForCausalLM"], deepseek::deepseek_v3),
    family("dots1", &["Dots1ForCausalLM"], dots1::dots1),
    family("ernie4_5", &["Ernie4_5ForCausalLM"], llama::ernie4_5),
    family("falcon", &["FalconForCausalLM", "RWForCausalLM"], falcon::falcon),
    family("gemma", &["GemmaForCausalLM"], gemma::gemma),
    family("gemma2", &["Gemma2ForCausalLM"], gemma::gemma2),
    // Of the multimodal class, the language model.
    family("gemma3", &["Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"], gemma::gemma3),
    family("gemma3_text", &["Gemma3ForCausalLM"], gemma::gemma3_text),
    family("glm4", &["Glm4ForCausalLM"], glm::glm4),
    family("glm4_moe", &["Glm4MoeForCausalLM"], glm::glm4_moe),
    family("gpt2", &["GPT2LMHeadModel"], gpt2::gpt2),
    family("gpt_bigcode", &["GPTBigCodeForCausalLM"], gpt2::gpt_bigcode),
    family("gpt_neox", &["GPTNeoXForCausalLM"], gpt_neox::gpt_neox),
    family("gpt_oss", &["GptOssForCausalLM"], gpt_oss::gpt_oss),
    family("gptj", &["GPTJForCausalLM"], gpt_neox::gptj),
    family("granite", &["GraniteForCausalLM"], granite::granite),
    family("granitemoe", &["GraniteMoeForCausalLM"], granite::granitemoe),
    family("granitemoeshared", &["GraniteMoeSharedForCausalLM"], granite::granitemoeshared),
    family("kimi_k2", &["DeepseekV3ForCausalLM"], deepseek::deepseek_v3),
    family("llama", &["LlamaForCausalLM", "LLaMAForCausalLM"], llama::llama),
    family("minimax_m2", &["MiniMaxM2ForCausalLM"], minimax::minimax_m2),
    family("mistral", &["MistralForCausalLM"], mistral::mistral),
    family("mixtral", &["MixtralForCausalLM"], mistral::mixtral),
    family("mpt", &["MptForCausalLM", "MPTForCausalLM"], mpt::mpt),
    family("olmo", &["OlmoForCausalLM"], olmo::olmo),
    family("olmo2", &["Olmo2ForCausalLM"], olmo::olmo2),
    family("olmo3", &["Olmo3ForCausalLM"], olmo::olmo3),
    family("olmoe", &["OlmoeForCausalLM"], olmo::olmoe),
    family("opt", &["OPTForCausalLM"], opt::opt),
    family("phi", &["PhiForCausalLM"], phi::phi),
    family("phi3", &["Phi3ForCausalLM"], phi::phi3),
    family("qwen2", &["Qwen2ForCausalLM"], qwen::qwen2),
    family("qwen2_moe", &["Qwen2MoeForCausalLM"], qwen::qwen2_moe),
    family("qwen3", &["Qwen3ForCausalLM"], qwen::qwen3),
    family("qwen3_moe", &["Qwen3MoeForCausalLM"], qwen::qwen3_moe),
    family("roberta", &["RobertaForMaskedLM", "RobertaForCausalLM"], bert::roberta),
    family("seed_oss", &["SeedOssForCausalLM"], llama::seed_oss),
    family("smollm3", &["SmolLM3ForCausalLM"], smollm3::smollm3),
    family("starcoder2", &["Starcoder2ForCausalLM"], starcoder2::starcoder2),
    family("t5", &["T5ForConditionalGeneration", "T5WithLMHeadModel"], t5::t5),
    family("vit", &["ViTForImageClassification"], vit::vit),
    family("xlm-roberta", &["XLMRobertaForMaskedLM", "XLMRobertaForCausalLM"], bert::xlm_roberta),
];

/// Every class that is read, by family.
pub(super) fn classes() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    FAMILIES.iter().map(|family| (family.model_type, family.classes))
}

/// The class that `object` names, or its family's first, and the transformer that it is.
///
/// A class without a head, as `LlamaModel`, or with the head of another task is refused: the head is
/// part of what trains, and its parameters would be miscounted.
pub(super) fn read(
    object: &Map<String, Value>,
) -> Result<(String, Transformer, Vec<ModelWarning>), ModelError> {
    let model_type = Fields::new("config.json", object).text_or("model_type", "")?;
    let Some(family) = family_of(model_type) else {
        return language_model(model_type, object);
    };
    let asked = Asked::default();
    let fields = Fields::new(model_type, object).noting(&asked);
    let named = fields.texts("architectures")?.and_then(|classes| classes.first().copied());
    let class = named.unwrap_or(family.classes[0]);
    if !family.classes.contains(&class) {
        return Err(ModelError::UnsupportedClass {
            architecture: model_type.to_owned(),
            class: class.to_owned(),
            supported: list(family.classes.iter().copied()),
        });
    }
    let transformer = (family.read)(fields)?;
    Ok((class.to_owned(), transformer, asked.warnings(model_type, object)))
}

/// The class that `object` names, and the `model_type` that has it.
pub(super) fn named_by_class(object: &Map<String, Value>) -> Option<(&'static str, &'static str)> {
    let named = object.get("architectures")?.get(0)?.as_str()?;
    let all = classes()
        .flat_map(|(model_type, classes)| classes.iter().map(move |class| (*class, model_type)));
    all.into_iter().find(|(class, _)| *class == named)
}

fn family_of(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_type == model_type)
}

/// The families that language models are of which have names of their own where they read images too. Their rotation
/// by three axes is the plain one where there is text alone.
const LANGUAGE_MODELS: &[(&str, &str)] = &[
    ("qwen2_vl", "qwen2"),
    ("qwen2_vl_text", "qwen2"),
    ("qwen2_5_vl", "qwen2"),
    ("qwen2_5_vl_text", "qwen2"),
    ("qwen3_vl_text", "qwen3"),
    ("qwen3_vl_moe_text", "qwen3_moe"),
];

/// The language model of one that reads more than text, where it is known; its other parts are not modelled. It is what
/// `text_config` describes, or in older configurations what stands beside the other parts.
fn language_model(
    model_type: &str,
    object: &Map<String, Value>,
) -> Result<(String, Transformer, Vec<ModelWarning>), ModelError> {
    let text = object.get("text_config").and_then(Value::as_object);
    let mut inner = text.unwrap_or(object).clone();
    let own = inner.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let renamed = LANGUAGE_MODELS.iter().find(|(name, _)| *name == own).map(|(_, family)| *family);
    let found = renamed.or_else(|| text.and(family_of(own)).map(|family| family.model_type));
    let Some(family) = found else {
        // Without a type of its own, nothing says what the text is read by.
        if text.is_some() && own.is_empty() {
            return Err(ModelError::MissingField {
                architecture: model_type.to_owned(),
                field: "text_config.model_type".to_owned(),
                similar: None,
            });
        }
        let architecture = if text.is_some() { own } else { model_type };
        return Err(ModelError::UnknownArchitecture {
            architecture: architecture.to_owned(),
            known: list(FAMILIES.iter().map(|family| family.model_type)),
        });
    };
    if own == "qwen3_vl_moe_text" {
        inner.insert("norm_topk_prob".to_owned(), true.into());
    }
    if renamed.is_some() {
        inner.insert("model_type".to_owned(), family.into());
        for other in ["architectures", "vision_config"] {
            inner.remove(other);
        }
    }
    // The head is the whole model's.
    if let Some(tied) = object.get("tie_word_embeddings") {
        inner.entry("tie_word_embeddings").or_insert_with(|| tied.clone());
    }
    let (class, transformer, mut warnings) = read(&inner)?;
    let (architecture, inner) = (model_type.to_owned(), family.to_owned());
    warnings.insert(0, ModelWarning::LanguageModelAlone { architecture, inner });
    Ok((class, transformer, warnings))
}

/// Words in back ticks, with commas.
pub(super) fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
