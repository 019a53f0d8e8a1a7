//! The built-in measured steps.

/// Name and text of a table of the reference.
macro_rules! table {
    ($name:literal) => {
        ($name, include_str!(concat!("../reference/", $name)))
    };
}

/// Tables of measured steps, each row with its source, as names and texts, in the format of a `runs` folder.
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
