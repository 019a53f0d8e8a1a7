//! The built-in measured steps.

/// File, source and text of a table of the reference.
macro_rules! table {
    ($file:literal, $source:literal) => {
        ($file, $source, include_str!(concat!("../reference/", $file)))
    };
}

/// Tables of measured steps: files, their sources, and their texts in the format of a `runs` folder.
pub const REFERENCE: [(&str, &str, &str); 20] = [
    table!("runs_bigscience.json", "BigScience, A100"),
    table!("runs_bigscience_v100.json", "BigScience, V100"),
    table!("runs_fms_fsdp.json", "fms-fsdp"),
    table!("runs_internevo.json", "InternEvo"),
    table!("runs_kempnerforge.json", "KempnerForge"),
    table!("runs_korthikanti.json", "Korthikanti et al. 2022"),
    table!("runs_megatron_bridge.json", "Megatron-Bridge releases"),
    table!("runs_megatron_bridge_overlap.json", "Megatron-Bridge, overlap of exchanges"),
    table!("runs_megatron_bridge_skills.json", "Megatron-Bridge's guides"),
    table!("runs_megatron_ci.json", "Megatron-Core's nightly tests"),
    table!("runs_megatron_sc21.json", "Narayanan et al. 2021"),
    table!("runs_mlperf.json", "MLPerf Training"),
    table!("runs_moe_modelzoo.json", "Megatron-MoE-ModelZoo"),
    table!("runs_mosaic_llm_foundry.json", "MosaicML LLM Foundry"),
    table!("runs_named_models.json", "model reports"),
    table!("runs_nanotron.json", "nanotron"),
    table!("runs_simumax.json", "SimuMax, 8 B200"),
    table!("runs_torchtitan.json", "torchtitan"),
    table!("runs_vocab_parallel.json", "vocabulary parallelism"),
    table!("runs_zero_bubble.json", "zero bubble"),
];
