//! The measured steps that ship with the planner.

/// A table of the reference.
macro_rules! table {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../traces/reference/", $name)))
    };
}

/// Tables of measured steps, each row with its source: names and texts, in the format of a folder's `runs`.
pub const REFERENCE: [(&str, &str); 20] = [
    table!("runs_bigscience.json"),
    table!("runs_bigscience_v100.json"),
    table!("runs_fms_fsdp.json"),
    table!("runs_internevo.json"),
    table!("runs_kempnerforge.json"),
    table!("runs_korthikanti.json"),
    table!("runs_megatron_bridge.json"),
    table!("runs_megatron_bridge_overlap.json"),
    table!("runs_megatron_bridge_skills.json"),
    table!("runs_megatron_ci.json"),
    table!("runs_megatron_sc21.json"),
    table!("runs_mlperf.json"),
    table!("runs_moe_modelzoo.json"),
    table!("runs_mosaic_llm_foundry.json"),
    table!("runs_named_models.json"),
    table!("runs_nanotron.json"),
    table!("runs_simumax.json"),
    table!("runs_torchtitan.json"),
    table!("runs_vocab_parallel.json"),
    table!("runs_zero_bubble.json"),
];

/// What those who measured are called, by what stands between `runs_` and `.json`.
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

/// What those are called who measured what is in a file of the reference; none of another.
pub fn source_name(file: &str) -> Option<&'static str> {
    let stem = file.strip_prefix("runs_")?.strip_suffix(".json")?;
    NAMES.iter().find(|(known, _)| *known == stem).map(|(_, name)| *name)
}
