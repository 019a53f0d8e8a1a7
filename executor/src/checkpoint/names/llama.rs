//! Decoders whose names are Llama's, or nearly so.

use super::family::{Family, Modules};
use super::module::{
    EXPERTS_GATE_UP, EXPERTS_GATE_UP_IN_TURN, GATE_UP, LATENT, Module, Orientation, QKV_IN_ORDER,
    SHARED_GATE_UP, bare, named,
};

const LLAMA_ENDS: Modules = &[
    ("embedding.tokens", named("model.embed_tokens")),
    ("head.norm", named("model.norm")),
    ("head", named("lm_head")),
];

pub(super) const LLAMA_ATTENTION: Modules = &[
    ("attention.query", named("self_attn.q_proj")),
    ("attention.key", named("self_attn.k_proj")),
    ("attention.value", named("self_attn.v_proj")),
    ("attention.query_norm", named("self_attn.q_norm")),
    ("attention.key_norm", named("self_attn.k_norm")),
    ("attention.output", named("self_attn.o_proj")),
    ("attention.core:sinks", bare("self_attn.sinks")),
];

pub(super) const LLAMA_NORMS: Modules = &[
    ("attention.norm", named("input_layernorm")),
    ("mlp.norm", named("post_attention_layernorm")),
];

const LLAMA_MLP: Modules = &[
    ("mlp.gate", named("mlp.gate_proj")),
    ("mlp.up", named("mlp.up_proj")),
    ("mlp.down", named("mlp.down_proj")),
];

const MIXTRAL_EXPERTS: Modules = &[
    ("mlp.router", named("block_sparse_moe.gate")),
    ("mlp.router.correction:weight", bare("block_sparse_moe.e_score_correction_bias")),
    ("mlp.experts.gate", named("block_sparse_moe.experts.{}.w1")),
    ("mlp.experts.up", named("block_sparse_moe.experts.{}.w3")),
    ("mlp.experts.down", named("block_sparse_moe.experts.{}.w2")),
];

/// Experts of Qwen, OLMoE and DeepSeek.
const EXPERTS: Modules = &[
    ("mlp.router", named("mlp.gate")),
    ("mlp.router.correction:weight", bare("mlp.gate.e_score_correction_bias")),
    ("mlp.experts.gate", named("mlp.experts.{}.gate_proj")),
    ("mlp.experts.up", named("mlp.experts.{}.up_proj")),
    ("mlp.experts.down", named("mlp.experts.{}.down_proj")),
];

const QWEN2_SHARED: Modules = &[
    ("mlp.shared.gate", named("mlp.shared_expert.gate_proj")),
    ("mlp.shared.up", named("mlp.shared_expert.up_proj")),
    ("mlp.shared.down", named("mlp.shared_expert.down_proj")),
    ("mlp.shared_gate", named("mlp.shared_expert_gate")),
];

const DEEPSEEK_LAYER: Modules = &[
    ("attention.query_down", named("self_attn.q_a_proj")),
    ("attention.query_norm", named("self_attn.q_a_layernorm")),
    ("attention.query_up", named("self_attn.q_b_proj")),
    ("attention.query", named("self_attn.q_proj")),
    ("attention.key_value_down", named("self_attn.kv_a_proj_with_mqa").of(&LATENT)),
    ("attention.key_rope", named("self_attn.kv_a_proj_with_mqa").of(&LATENT)),
    ("attention.key_value_norm", named("self_attn.kv_a_layernorm")),
    ("attention.key_value_up", named("self_attn.kv_b_proj")),
    ("attention.output", named("self_attn.o_proj")),
];

/// The experts of DeepSeek that every token goes to.
const SHARED: Modules = &[
    ("mlp.shared.gate", named("mlp.shared_experts.gate_proj")),
    ("mlp.shared.up", named("mlp.shared_experts.up_proj")),
    ("mlp.shared.down", named("mlp.shared_experts.down_proj")),
];

/// What a module for multi-token prediction has beside a layer.
const FURTHER: Modules = &[
    ("mtp.embedding_norm", named("enorm")),
    ("mtp.hidden_norm", named("hnorm")),
    ("mtp.projection", named("eh_proj")),
    ("mtp.head.norm", named("shared_head.norm")),
];

const GEMMA2_NORMS: Modules = &[
    ("attention.norm", named("input_layernorm")),
    ("attention.post_norm", named("post_attention_layernorm")),
    ("mlp.norm", named("pre_feedforward_layernorm")),
    ("mlp.post_norm", named("post_feedforward_layernorm")),
];

const GLM4_NORMS: Modules = &[
    ("attention.norm", named("input_layernorm")),
    ("attention.post_norm", named("post_self_attn_layernorm")),
    ("mlp.norm", named("post_attention_layernorm")),
    ("mlp.post_norm", named("post_mlp_layernorm")),
];

const GLM4_MLP: Modules = &[
    ("mlp.gate", named("mlp.gate_up_proj").of(&GATE_UP)),
    ("mlp.up", named("mlp.gate_up_proj").of(&GATE_UP)),
    ("mlp.down", named("mlp.down_proj")),
];

const OLMO2_NORMS: Modules = &[
    ("attention.post_norm", named("post_attention_layernorm")),
    ("mlp.post_norm", named("post_feedforward_layernorm")),
];

const PHI_ENDS: Modules = &[
    ("embedding.tokens", named("model.embed_tokens")),
    ("head.norm", named("model.final_layernorm")),
    ("head", named("lm_head")),
];

const PHI_LAYER: Modules = &[
    ("attention.norm", named("input_layernorm")),
    ("attention.query_norm", named("self_attn.q_layernorm")),
    ("attention.key_norm", named("self_attn.k_layernorm")),
    ("attention.output", named("self_attn.dense")),
    ("mlp.up", named("mlp.fc1")),
    ("mlp.down", named("mlp.fc2")),
];

const PHI3_LAYER: Modules = &[
    ("attention.query", named("self_attn.qkv_proj").of(&QKV_IN_ORDER)),
    ("attention.key", named("self_attn.qkv_proj").of(&QKV_IN_ORDER)),
    ("attention.value", named("self_attn.qkv_proj").of(&QKV_IN_ORDER)),
    ("mlp.gate", named("mlp.gate_up_proj").of(&GATE_UP)),
    ("mlp.up", named("mlp.gate_up_proj").of(&GATE_UP)),
];

const STARCODER2_MLP: Modules = &[("mlp.up", named("mlp.c_fc")), ("mlp.down", named("mlp.c_proj"))];

const GRANITE_EXPERTS: Modules = &[
    ("mlp.router", named("block_sparse_moe.router.layer")),
    ("mlp.experts.gate", named("block_sparse_moe.input_linear").of(&EXPERTS_GATE_UP)),
    ("mlp.experts.up", named("block_sparse_moe.input_linear").of(&EXPERTS_GATE_UP)),
    ("mlp.experts.down", named("block_sparse_moe.output_linear")),
    ("mlp.shared.gate", named("shared_mlp.input_linear").of(&SHARED_GATE_UP)),
    ("mlp.shared.up", named("shared_mlp.input_linear").of(&SHARED_GATE_UP)),
    ("mlp.shared.down", named("shared_mlp.output_linear")),
    ("mlp.gate", named("shared_mlp.input_linear").of(&GATE_UP)),
    ("mlp.up", named("shared_mlp.input_linear").of(&GATE_UP)),
    ("mlp.down", named("shared_mlp.output_linear")),
];

/// gpt-oss's experts lie as they do here, gate and value in turn.
const fn gpt_oss(name: &'static str) -> Module {
    Module { orientation: Orientation::InputsFirst, ..bare(name) }
}

const GPT_OSS_EXPERTS: Modules = &[
    ("mlp.router", named("mlp.router")),
    ("mlp.experts.gate:weight", gpt_oss("mlp.experts.gate_up_proj").of(&EXPERTS_GATE_UP_IN_TURN)),
    ("mlp.experts.up:weight", gpt_oss("mlp.experts.gate_up_proj").of(&EXPERTS_GATE_UP_IN_TURN)),
    (
        "mlp.experts.gate:bias",
        gpt_oss("mlp.experts.gate_up_proj_bias").of(&EXPERTS_GATE_UP_IN_TURN),
    ),
    ("mlp.experts.up:bias", gpt_oss("mlp.experts.gate_up_proj_bias").of(&EXPERTS_GATE_UP_IN_TURN)),
    ("mlp.experts.down:weight", gpt_oss("mlp.experts.down_proj")),
    ("mlp.experts.down:bias", gpt_oss("mlp.experts.down_proj_bias")),
];

/// Layers of a decoder whose names begin as Llama's.
const fn llama_like(
    classes: &'static [&'static str],
    layers: &'static [(&'static str, &'static str, &'static [Modules])],
) -> Family {
    Family { classes, ends: LLAMA_ENDS, layers }
}

/// What the names of Llama's layers begin with.
const LLAMA: &str = "model.layers.#.";

pub(super) static FAMILIES: &[Family] = &[
    llama_like(
        &[
            "LlamaForCausalLM",
            "llama",
            "LLaMAForCausalLM",
            "mistral",
            "MistralForCausalLM",
            "mixtral",
            "MixtralForCausalLM",
            "qwen2",
            "Qwen2ForCausalLM",
            "qwen3",
            "Qwen3ForCausalLM",
            "gemma",
            "GemmaForCausalLM",
            "granite",
            "GraniteForCausalLM",
            "olmo",
            "OlmoForCausalLM",
            "cohere",
            "CohereForCausalLM",
            "cohere2",
            "Cohere2ForCausalLM",
            "smollm3",
            "SmolLM3ForCausalLM",
            "seed_oss",
            "SeedOssForCausalLM",
            "ernie4_5",
            "Ernie4_5ForCausalLM",
            "minimax_m2",
            "MiniMaxM2ForCausalLM",
        ],
        &[("layer", LLAMA, &[LLAMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP, MIXTRAL_EXPERTS])],
    ),
    llama_like(
        &[
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            "Qwen2MoeForCausalLM",
            "qwen2_moe",
            "OlmoeForCausalLM",
            "olmoe",
        ],
        &[("layer", LLAMA, &[LLAMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP, EXPERTS, QWEN2_SHARED])],
    ),
    llama_like(
        &[
            "DeepseekV3ForCausalLM",
            "deepseek_v3",
            "kimi_k2",
            "DeepseekV2ForCausalLM",
            "deepseek_v2",
        ],
        &[
            ("layer", LLAMA, &[LLAMA_NORMS, DEEPSEEK_LAYER, LLAMA_MLP, EXPERTS, SHARED]),
            ("mtp", LLAMA, &[LLAMA_NORMS, DEEPSEEK_LAYER, LLAMA_MLP, EXPERTS, SHARED, FURTHER]),
        ],
    ),
    llama_like(
        &["Glm4MoeForCausalLM", "glm4_moe", "Dots1ForCausalLM", "dots1"],
        &[
            ("layer", LLAMA, &[LLAMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP, EXPERTS, SHARED]),
            ("mtp", LLAMA, &[LLAMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP, EXPERTS, SHARED, FURTHER]),
        ],
    ),
    llama_like(
        &["Glm4ForCausalLM", "glm4"],
        &[("layer", LLAMA, &[GLM4_NORMS, LLAMA_ATTENTION, GLM4_MLP])],
    ),
    llama_like(
        &["Gemma2ForCausalLM", "gemma2", "Gemma3ForCausalLM", "gemma3_text"],
        &[("layer", LLAMA, &[GEMMA2_NORMS, LLAMA_ATTENTION, LLAMA_MLP])],
    ),
    Family {
        classes: &["Gemma3ForConditionalGeneration", "gemma3"],
        ends: &[
            ("embedding.tokens", named("language_model.model.embed_tokens")),
            ("head.norm", named("language_model.model.norm")),
            ("head", named("language_model.lm_head")),
        ],
        layers: &[(
            "layer",
            "language_model.model.layers.#.",
            &[GEMMA2_NORMS, LLAMA_ATTENTION, LLAMA_MLP],
        )],
    },
    llama_like(
        &["Olmo2ForCausalLM", "olmo2", "Olmo3ForCausalLM", "olmo3"],
        &[("layer", LLAMA, &[OLMO2_NORMS, LLAMA_ATTENTION, LLAMA_MLP])],
    ),
    llama_like(
        &["Phi3ForCausalLM", "phi3"],
        &[("layer", LLAMA, &[PHI3_LAYER, LLAMA_NORMS, LLAMA_ATTENTION, LLAMA_MLP])],
    ),
    llama_like(
        &["Starcoder2ForCausalLM", "starcoder2"],
        &[("layer", LLAMA, &[LLAMA_NORMS, LLAMA_ATTENTION, STARCODER2_MLP])],
    ),
    llama_like(
        &["GraniteMoeForCausalLM", "granitemoe", "GraniteMoeSharedForCausalLM", "granitemoeshared"],
        &[("layer", LLAMA, &[LLAMA_NORMS, LLAMA_ATTENTION, GRANITE_EXPERTS])],
    ),
    llama_like(
        &["GptOssForCausalLM", "gpt_oss"],
        &[("layer", LLAMA, &[LLAMA_NORMS, LLAMA_ATTENTION, GPT_OSS_EXPERTS])],
    ),
    Family {
        classes: &["PhiForCausalLM", "phi"],
        ends: PHI_ENDS,
        layers: &[("layer", LLAMA, &[PHI_LAYER, LLAMA_ATTENTION])],
    },
];
