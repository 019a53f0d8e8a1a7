//! What follows from the words of a run's source.

use ir::framework::Framework;

use super::row::{Row, Unsupported};

/// Frameworks by words of the sources whose runs they ran; the first that fits.
const FRAMEWORKS: [(&str, Framework); 13] = [
    ("BigScience", Framework::MegatronDeepspeed),
    ("MT-NLG", Framework::MegatronDeepspeed),
    ("GLM-130B", Framework::MegatronDeepspeed),
    ("vTrain", Framework::MegatronLm),
    ("nanotron", Framework::Nanotron),
    ("llm-foundry", Framework::Fsdp),
    ("torchtitan", Framework::Torchtitan),
    ("Megatron-Bridge", Framework::MegatronCore),
    ("SimuMax", Framework::MegatronCore),
    ("MLPerf", Framework::MegatronCore),
    ("Megatron-LM", Framework::MegatronLm),
    ("Reducing Activation Recomputation", Framework::MegatronLm),
    ("Pipeline Parallelism", Framework::MegatronLm),
];

pub(super) fn framework(row: &Row) -> Framework {
    let title = row.text("source_title");
    let is_sharded = row.count("zero_stage").ok().flatten() == Some(3);
    if title.contains("Megatron-LM") && is_sharded {
        // What the paper holds itself against.
        return Framework::Deepspeed;
    }
    let named = FRAMEWORKS.iter().find(|(words, _)| title.contains(words));
    let is_old = ["V100", "A100"].iter().any(|gpu| row.text("gpu").starts_with(gpu));
    match named {
        Some((_, framework)) => *framework,
        None if row.text("schedule").contains("DeepSpeed") => Framework::MegatronDeepspeed,
        None if !row.text("fsdp_shard").is_empty() => Framework::Fsdp,
        None if is_old => Framework::MegatronLm,
        None => Framework::MegatronCore,
    }
}

/// Whether a run is one layer's forward and backward alone, without a vocabulary.
pub(super) fn is_layer(row: &Row) -> bool {
    row.text("schedule").starts_with("single layer")
}

/// In how many parts the vocabulary is cut beside tensor parallelism: one for each pipeline rank where the
/// source says so.
pub(super) fn vocabulary_parts(row: &Row) -> Result<u32, Unsupported> {
    let methods = ["vocab-1", "vocab-2", "interlaced"];
    if methods.contains(&row.extra("vocab_method")) { row.degree("pp") } else { Ok(1) }
}
