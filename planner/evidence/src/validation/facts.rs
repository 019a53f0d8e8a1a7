//! What is known of published runs that their rows do not state, and what runs them.

use std::sync::LazyLock;

use ir::framework::{AttentionLibrary, Launches, LossKernels, TensorOverlap, UnalignedRows};
use ir::graph::{CudaGraphs, RecomputeModule, TokenDispatcher};
use serde::Deserialize;

use super::row::{MemoryKind, MemoryOf, Row, Unsupported};

/// Facts of published sources, each with its reason.
const SOURCES: &str = include_str!("sources.json");

/// What a run did that its row's other fields do not say. A row states it in `extra.facts`; those of published sources
/// are in `sources.json`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Facts {
    /// The preset of what ran it.
    pub framework: Option<String>,
    /// Whether gradients were added up in fp32.
    pub fp32_gradients: Option<bool>,
    /// Whether moments were kept in bf16.
    pub bf16_moments: Option<bool>,
    /// When its host launched kernels.
    pub launches: Option<Launches>,
    /// Whose attention it called.
    pub attention: Option<AttentionLibrary>,
    /// What computed products whose rows are not aligned.
    pub unaligned_rows: Option<UnalignedRows>,
    /// Of what each tensor-parallel rank's part of the vocabulary was made a multiple.
    pub vocabulary_multiple: Option<u32>,
    /// The kernels of its loss.
    pub loss: Option<LossKernels>,
    /// What its tensor-parallel exchanges ran beside.
    pub tensor_overlap: Option<TensorOverlap>,
    /// How its tokens came to their experts.
    pub token_dispatcher: Option<TokenDispatcher>,
    /// In how many network domains a token's experts were at most.
    pub most_domains: Option<u32>,
    /// What was captured in CUDA graphs.
    pub cuda_graphs: Option<CudaGraphs>,
    /// Modules that were computed again.
    pub recomputed: Option<Vec<RecomputeModule>>,
    /// Of which pipeline rank the memory is.
    pub memory_of: Option<MemoryOf>,
    /// What its memory counts.
    pub memory_kind: Option<MemoryKind>,
}

/// Rows that facts are of: all that is said here is so of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rows {
    /// In the source's title.
    title: Option<String>,
    /// In the place within the source.
    locator: Option<String>,
    /// In the notes.
    notes: Option<String>,
    /// In the model's name.
    model: Option<String>,
    /// At the beginning of the GPU's name.
    gpu: Option<String>,
    most_gpus: Option<u64>,
    zero_stage: Option<u64>,
    /// Not before this `extra.date`.
    from_date: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    of: Rows,
    facts: Facts,
    #[serde(rename = "why", default)]
    _why: String,
}

impl Rows {
    fn has(&self, row: &Row) -> bool {
        let contains = |field: &str, words: &Option<String>| {
            words.as_ref().is_none_or(|words| row.text(field).contains(words.as_str()))
        };
        let count = |name: &str| row.count(name).ok().flatten();
        contains("source_title", &self.title)
            && contains("source_locator", &self.locator)
            && contains("notes", &self.notes)
            && contains("model_name", &self.model)
            && self.gpu.as_ref().is_none_or(|gpu| row.text("gpu").starts_with(gpu.as_str()))
            && self.most_gpus.is_none_or(|most| count("n_gpus").is_some_and(|gpus| gpus <= most))
            && self.zero_stage.is_none_or(|stage| count("zero_stage") == Some(stage))
            && self.from_date.as_ref().is_none_or(|date| row.extra("date") >= date.as_str())
    }
}

impl Facts {
    /// Those of a row: its own, and where it states none, those of its source.
    ///
    /// # Errors
    ///
    /// Its `extra.facts` are not of this form.
    pub(super) fn of(row: &Row) -> Result<Self, Unsupported> {
        static KNOWN: LazyLock<Vec<Source>> =
            LazyLock::new(|| serde_json::from_str(SOURCES).expect("what ships is valid; a test"));
        let mut facts = match row.extra_value("facts") {
            None => Self::default(),
            Some(own) => Self::deserialize(own)
                .map_err(|error| Unsupported::new(format!("`extra.facts`: {error}")))?,
        };
        for source in KNOWN.iter().filter(|source| source.of.has(row)) {
            facts.fill(&source.facts);
        }
        Ok(facts)
    }

    /// Takes what is not there yet from others.
    fn fill(&mut self, others: &Self) {
        macro_rules! fill {
            ($($field:ident),*) => {
                $(if self.$field.is_none() { self.$field.clone_from(&others.$field); })*
            };
        }
        fill!(framework, fp32_gradients, bf16_moments, launches, attention, tensor_overlap);
        fill!(unaligned_rows, vocabulary_multiple, loss);
        fill!(token_dispatcher, most_domains, cuda_graphs, recomputed, memory_of, memory_kind);
    }
}

/// Frameworks by words of what rows call them (`extra.framework`), in small letters; the first that fits.
const NAMES: [(&str, &str); 19] = [
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("megatron-core", "megatron-core"),
    ("megatron core", "megatron-core"),
    ("megatron-bridge", "megatron-core"),
    ("nemo", "megatron-core"),
    ("megatron", "megatron-lm"),
    ("deepspeed", "deepspeed"),
    ("torchtitan", "torchtitan"),
    ("fsdp2", "fsdp2"),
    ("fms-fsdp", "fsdp2"),
    ("automodel", "fsdp2"),
    ("accelerate", "fsdp2"),
    ("llm-foundry", "fsdp"),
    ("llm foundry", "fsdp"),
    ("composer", "fsdp"),
    ("fsdp", "fsdp2"),
    ("nanotron", "nanotron"),
    ("internevo", "internevo"),
    ("maxtext", "maxtext"),
];

/// What ran a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RanBy {
    /// A framework that is known.
    Preset(String),
    /// Another, or none is named: the preset that stands for what runs on such devices.
    Unknown(&'static str),
}

impl RanBy {
    /// That of a row with these facts: what the row calls it, else its source, else what is likely by its layout.
    pub(super) fn of(row: &Row, facts: &Facts) -> Self {
        let named = row.extra("framework").to_lowercase();
        let known = NAMES.iter().find(|(words, _)| named.contains(words));
        if let Some((_, preset)) = known {
            return Self::Preset((*preset).to_owned());
        }
        let is_tpu = row.text("gpu").to_lowercase().contains("tpu");
        match &facts.framework {
            Some(name) if named.is_empty() => Self::Preset(name.clone()),
            _ if is_tpu => Self::Unknown("maxtext"),
            _ if row.text("schedule").contains("DeepSpeed") => {
                Self::Preset("megatron-deepspeed".to_owned())
            }
            _ => Self::Unknown("unknown"),
        }
    }

    /// The preset that stands for it.
    pub(super) fn preset(&self) -> &str {
        match self {
            Self::Preset(name) => name,
            Self::Unknown(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use cost_models::frameworks;

    use super::*;

    #[test]
    fn facts_that_ship_name_frameworks_that_ship() {
        let sources: Vec<Source> = serde_json::from_str(SOURCES).expect("they are valid");
        for framework in sources.iter().filter_map(|source| source.facts.framework.as_deref()) {
            assert!(frameworks::preset(framework).is_some(), "{framework}");
        }
        for (_, framework) in NAMES {
            assert!(frameworks::preset(framework).is_some(), "{framework}");
        }
    }
}
