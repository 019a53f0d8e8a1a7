//! The built-in measured steps.

/// File, source and text of a table of the reference.
macro_rules! table {
    ($file:literal, $source:literal) => {
        ($file, $source, include_str!(concat!("../reference/", $file)))
    };
}

/// Tables of measured steps: files, their sources, and their texts in the format of a `runs` folder.
pub const REFERENCE: [(&str, &str, &str); 31] = [
    table!("runs_bigscience.json", "BigScience, A100"),
    table!("runs_bigscience_v100.json", "BigScience, V100"),
    table!("runs_deepspeed_autotuning.json", "DeepSpeed autotuning, Hugging Face's GPT-2"),
    table!("runs_fms_fsdp.json", "fms-fsdp"),
    table!("runs_gipfel_gh200.json", "Megatron-Core on GH200"),
    table!("runs_hagemann.json", "Hagemann et al. 2023"),
    table!("runs_internevo.json", "InternEvo"),
    table!("runs_kempnerforge.json", "KempnerForge"),
    table!("runs_korthikanti.json", "Korthikanti et al. 2022"),
    table!("runs_libai.json", "LiBai and Megatron-LM of 2022, V100"),
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
    table!("runs_paddlenlp.json", "PaddleNLP"),
    table!("runs_primus_qwen3_30b.json", "AMD Primus, MI355X"),
    table!("runs_qwen_finetune.json", "Qwen's fine-tuning, DeepSpeed"),
    table!("runs_qwen_finetune_lora.json", "Qwen's fine-tuning with LoRA, DeepSpeed"),
    table!("runs_simumax.json", "SimuMax, 8 B200"),
    table!("runs_titan_otel_mi355x.json", "torchtitan on MI355X"),
    table!("runs_torchao_float8.json", "torchao, H100 and MI300X"),
    table!("runs_torchtitan.json", "torchtitan"),
    table!("runs_torchtitan_gb200_blog.json", "torchtitan on GB200"),
    table!("runs_vocab_parallel.json", "vocabulary parallelism"),
    table!("runs_zero_bubble.json", "zero bubble"),
];
