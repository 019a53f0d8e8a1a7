//! What follows from the words of a run's source.

use super::row::{Row, Unsupported};

/// Frameworks by words of the sources whose runs they ran; the first that fits.
const FRAMEWORKS: [(&str, &str); 18] = [
    ("arXiv 2104.04473", "megatron-lm-2021"),
    ("tables.tex", "megatron-lm-2021"),
    ("InternEvo", "internevo"),
    ("fms-fsdp", "fsdp2"),
    ("KempnerForge", "fsdp2"),
    ("BigScience", "megatron-deepspeed"),
    ("MT-NLG", "megatron-deepspeed"),
    ("GLM-130B", "megatron-deepspeed"),
    ("vTrain", "megatron-lm"),
    ("nanotron", "nanotron"),
    ("llm-foundry", "fsdp"),
    ("torchtitan", "torchtitan"),
    ("Megatron-Bridge", "megatron-core"),
    ("SimuMax", "megatron-core"),
    ("MLPerf", "megatron-core"),
    ("Megatron-LM", "megatron-lm"),
    ("Reducing Activation Recomputation", "megatron-lm"),
    ("Pipeline Parallelism", "megatron-lm"),
];

/// The name of the framework that ran a row.
pub(super) fn framework(row: &Row) -> &'static str {
    let title = row.text("source_title");
    let is_sharded = row.count("zero_stage").ok().flatten() == Some(3);
    if title.contains("Megatron-LM") && is_sharded {
        // What the paper holds itself against.
        return "deepspeed";
    }
    let named = FRAMEWORKS.iter().find(|(words, _)| title.contains(words));
    let is_old = ["V100", "A100"].iter().any(|gpu| row.text("gpu").starts_with(gpu));
    match named {
        Some((_, framework)) => framework,
        None if row.text("schedule").contains("DeepSpeed") => "megatron-deepspeed",
        None if !row.text("fsdp_shard").is_empty() => "fsdp",
        None if is_old => "megatron-lm",
        None => "megatron-core",
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
