//! Sources of the built-in measured steps.

pub use traces::reference::REFERENCE;

/// Names of the sources, by the part of a file's name between `runs_` and `.json`.
pub const NAMES: [(&str, &str); 20] = [
    ("bigscience", "BigScience, A100"),
    ("bigscience_v100", "BigScience, V100"),
    ("fms_fsdp", "fms-fsdp"),
    ("internevo", "InternEvo"),
    ("kempnerforge", "KempnerForge"),
    ("korthikanti", "Korthikanti et al. 2022"),
    ("megatron_bridge", "Megatron-Bridge releases"),
    ("megatron_bridge_skills", "Megatron-Bridge's guides"),
    ("megatron_bridge_overlap", "Megatron-Bridge, overlap of exchanges"),
    ("megatron_ci", "Megatron-Core's nightly tests"),
    ("megatron_sc21", "Narayanan et al. 2021"),
    ("mlperf", "MLPerf Training"),
    ("moe_modelzoo", "Megatron-MoE-ModelZoo"),
    ("mosaic_llm_foundry", "MosaicML LLM Foundry"),
    ("named_models", "model reports"),
    ("nanotron", "nanotron"),
    ("simumax", "SimuMax, 8 B200"),
    ("torchtitan", "torchtitan"),
    ("vocab_parallel", "vocabulary parallelism"),
    ("zero_bubble", "zero bubble"),
];

/// Name of the source of a file of the reference; `None` for other files.
pub fn source_name(file: &str) -> Option<&'static str> {
    let stem = file.strip_prefix("runs_")?.strip_suffix(".json")?;
    NAMES.iter().find(|(known, _)| *known == stem).map(|(_, name)| *name)
}
