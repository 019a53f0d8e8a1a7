//! The names that Hugging Face's families have for what operators have here.

use super::super::parameter::ModelParameter;
use super::module::{
    EXPERTS_GATE_UP, EXPERTS_GATE_UP_IN_TURN, GATE_UP, LATENT, Module, Orientation, QKV_BY_HEAD,
    QKV_EVENLY, QKV_IN_ORDER, SHARED_GATE_UP, bare, conv1d, named, within,
};

/// Operators here, or a parameter of one after a colon, and modules there.
type Modules = &'static [(&'static str, Module)];

/// Models whose files have the same names.
#[derive(Debug)]
pub(super) struct Family {
    /// Classes and `model_type`s, and words of the short form.
    pub(super) classes: &'static [&'static str],
    /// What is in no layer.
    ends: Modules,
    /// Stacks of layers: what the blocks are called, what names begin with, `#` for the layer, and what is in one.
    layers: &'static [(&'static str, &'static str, &'static [Modules])],
}

impl Family {
    /// What the name of a parameter begins with, and its module.
    pub(super) fn find(&self, parameter: &ModelParameter) -> Option<(String, &'static Module)> {
        let Some(layer) = parameter.layer else {
            return Some((String::new(), find(self.ends, parameter)?));
        };
        let (_, prefix, modules) =
            self.layers.iter().find(|(block, ..)| *block == parameter.block_name)?;
        let module = modules.iter().find_map(|modules| find(modules, parameter))?;
        Some((prefix.replace('#', &layer.to_string()), module))
    }

    /// Whether its layers are `Conv1D`.
    pub(super) fn has_conv1d(&self) -> bool {
        let modules = self.layers.iter().flat_map(|(_, _, modules)| modules.iter().copied());
        modules.flatten().any(|(op, module)| {
            *op == "attention.output" && module.orientation == Orientation::InputsFirst
        })
    }
}

fn find(modules: Modules, parameter: &ModelParameter) -> Option<&'static Module> {
    let (op, name) = (parameter.id.op.as_str(), parameter.id.name.as_str());
    let by_parameter = modules.iter().find(|(ours, _)| ours.split_once(':') == Some((op, name)));
    let is_usual = matches!(name, "weight" | "bias");
    let by_op = || modules.iter().find(|(ours, _)| is_usual && *ours == op);
    by_parameter.or_else(by_op).map(|(_, module)| module)
}

const LLAMA_ENDS: Modules = &[
    ("embedding.tokens", named("model.embed_tokens")),
    ("head.norm", named("model.norm")),
    ("head", named("lm_head")),
];

const LLAMA_ATTENTION: Modules = &[
    ("attention.query", named("self_attn.q_proj")),
    ("attention.key", named("self_attn.k_proj")),
    ("attention.value", named("self_attn.v_proj")),
    ("attention.query_norm", named("self_attn.q_norm")),
    ("attention.key_norm", named("self_attn.k_norm")),
    ("attention.output", named("self_attn.o_proj")),
    ("attention.core:sinks", bare("self_attn.sinks")),
];

const LLAMA_NORMS: Modules = &[
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
    ("mlp.shared.gate", named("mlp.shared_experts.gate_proj")),
    ("mlp.shared.up", named("mlp.shared_experts.up_proj")),
    ("mlp.shared.down", named("mlp.shared_experts.down_proj")),
];

const GEMMA2_NORMS: Modules = &[
    ("attention.norm", named("input_layernorm")),
    ("attention.post_norm", named("post_attention_layernorm")),
    ("mlp.norm", named("pre_feedforward_layernorm")),
    ("mlp.post_norm", named("post_feedforward_layernorm")),
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

const GPT2_ENDS: Modules = &[
    ("embedding.tokens", named("transformer.wte")),
    ("embedding.positions", named("transformer.wpe")),
    ("head.norm", named("transformer.ln_f")),
    ("head", named("lm_head")),
];

const GPT2_LAYER: Modules = &[
    ("attention.norm", named("ln_1")),
    ("attention.query", conv1d("attn.c_attn").of(&QKV_EVENLY)),
    ("attention.key", conv1d("attn.c_attn").of(&QKV_EVENLY)),
    ("attention.value", conv1d("attn.c_attn").of(&QKV_EVENLY)),
    ("attention.output", conv1d("attn.c_proj")),
    ("mlp.norm", named("ln_2")),
    ("mlp.up", conv1d("mlp.c_fc")),
    ("mlp.down", conv1d("mlp.c_proj")),
];

const GPT_BIGCODE_LAYER: Modules = &[
    ("attention.norm", named("ln_1")),
    ("attention.query", named("attn.c_attn").of(&QKV_BY_HEAD)),
    ("attention.key", named("attn.c_attn").of(&QKV_BY_HEAD)),
    ("attention.value", named("attn.c_attn").of(&QKV_BY_HEAD)),
    ("attention.output", named("attn.c_proj")),
    ("mlp.norm", named("ln_2")),
    ("mlp.up", named("mlp.c_fc")),
    ("mlp.down", named("mlp.c_proj")),
];

const GPTJ_LAYER: Modules = &[
    ("attention.norm", named("ln_1")),
    ("attention.query", named("attn.q_proj")),
    ("attention.key", named("attn.k_proj")),
    ("attention.value", named("attn.v_proj")),
    ("attention.output", named("attn.out_proj")),
    ("mlp.up", named("mlp.fc_in")),
    ("mlp.down", named("mlp.fc_out")),
];

const NEOX_ENDS: Modules = &[
    ("embedding.tokens", named("gpt_neox.embed_in")),
    ("head.norm", named("gpt_neox.final_layer_norm")),
    ("head", named("embed_out")),
];

const NEOX_LAYER: Modules = &[
    ("attention.norm", named("input_layernorm")),
    ("attention.parallel_norm", named("input_layernorm")),
    ("mlp.parallel_norm", named("post_attention_layernorm")),
    ("attention.query", named("attention.query_key_value").of(&QKV_BY_HEAD)),
    ("attention.key", named("attention.query_key_value").of(&QKV_BY_HEAD)),
    ("attention.value", named("attention.query_key_value").of(&QKV_BY_HEAD)),
    ("attention.output", named("attention.dense")),
    ("mlp.norm", named("post_attention_layernorm")),
    ("mlp.up", named("mlp.dense_h_to_4h")),
    ("mlp.down", named("mlp.dense_4h_to_h")),
];

const BLOOM_ENDS: Modules = &[
    ("embedding.tokens", named("transformer.word_embeddings")),
    ("embedding.norm", named("transformer.word_embeddings_layernorm")),
    ("head.norm", named("transformer.ln_f")),
    ("head", named("lm_head")),
];

/// BLOOM's and Falcon's.
const BLOOM_LAYER: Modules = &[
    ("attention.query", named("self_attention.query_key_value").of(&QKV_BY_HEAD)),
    ("attention.key", named("self_attention.query_key_value").of(&QKV_BY_HEAD)),
    ("attention.value", named("self_attention.query_key_value").of(&QKV_BY_HEAD)),
    ("attention.output", named("self_attention.dense")),
    ("mlp.up", named("mlp.dense_h_to_4h")),
    ("mlp.down", named("mlp.dense_4h_to_h")),
];

/// Norms of attention and feed-forward side by side, each with its own.
const FALCON_NORMS: Modules =
    &[("attention.parallel_norm", named("ln_attn")), ("mlp.parallel_norm", named("ln_mlp"))];

const MPT_ENDS: Modules = &[
    ("embedding.tokens", named("transformer.wte")),
    ("head.norm", named("transformer.norm_f")),
    ("head", named("lm_head")),
];

const MPT_LAYER: Modules = &[
    ("attention.norm", named("norm_1")),
    ("attention.query", named("attn.Wqkv").of(&QKV_IN_ORDER)),
    ("attention.key", named("attn.Wqkv").of(&QKV_IN_ORDER)),
    ("attention.value", named("attn.Wqkv").of(&QKV_IN_ORDER)),
    ("attention.output", named("attn.out_proj")),
    ("mlp.norm", named("norm_2")),
    ("mlp.up", named("ffn.up_proj")),
    ("mlp.down", named("ffn.down_proj")),
];

const OPT_ENDS: Modules = &[
    ("embedding.tokens", named("model.decoder.embed_tokens")),
    ("embedding.positions", named("model.decoder.embed_positions")),
    ("embedding.projection", named("model.decoder.project_in")),
    ("head.norm", named("model.decoder.final_layer_norm")),
    ("head.projection", named("model.decoder.project_out")),
    ("head", named("lm_head")),
];

const OPT_LAYER: Modules = &[
    ("attention.norm", named("self_attn_layer_norm")),
    ("attention.output", named("self_attn.out_proj")),
    ("mlp.norm", named("final_layer_norm")),
    ("mlp.up", named("fc1")),
    ("mlp.down", named("fc2")),
];

const T5_ENDS: Modules = &[
    ("embedding.tokens", named("shared")),
    ("encoder.norm", named("encoder.final_layer_norm")),
    ("head.norm", named("decoder.final_layer_norm")),
    ("head", named("lm_head")),
];

const T5_ATTENTION: Modules = &[
    ("attention.norm", named("layer.0.layer_norm")),
    ("attention.query", named("layer.0.SelfAttention.q")),
    ("attention.key", named("layer.0.SelfAttention.k")),
    ("attention.value", named("layer.0.SelfAttention.v")),
    ("attention.output", named("layer.0.SelfAttention.o")),
    (
        "attention.encoder_core:relative_bias",
        bare("layer.0.SelfAttention.relative_attention_bias.weight"),
    ),
    (
        "attention.layer_core:relative_bias",
        bare("layer.0.SelfAttention.relative_attention_bias.weight"),
    ),
];

const T5_ENCODER: Modules =
    &[("mlp.norm", named("layer.1.layer_norm")), ("mlp.down", named("layer.1.DenseReluDense.wo"))];

const T5_ENCODER_UP: Modules = &[("mlp.up", named("layer.1.DenseReluDense.wi"))];

const T5_ENCODER_GATED: Modules = &[
    ("mlp.gate", named("layer.1.DenseReluDense.wi_0")),
    ("mlp.up", named("layer.1.DenseReluDense.wi_1")),
];

const T5_DECODER_UP: Modules = &[("mlp.up", named("layer.2.DenseReluDense.wi"))];

const T5_DECODER_GATED: Modules = &[
    ("mlp.gate", named("layer.2.DenseReluDense.wi_0")),
    ("mlp.up", named("layer.2.DenseReluDense.wi_1")),
];

const T5_DECODER: Modules = &[
    ("cross_attention.norm", named("layer.1.layer_norm")),
    ("cross_attention.query", named("layer.1.EncDecAttention.q")),
    ("cross_attention.key", named("layer.1.EncDecAttention.k")),
    ("cross_attention.value", named("layer.1.EncDecAttention.v")),
    ("cross_attention.output", named("layer.1.EncDecAttention.o")),
    ("mlp.norm", named("layer.2.layer_norm")),
    ("mlp.down", named("layer.2.DenseReluDense.wo")),
];

const BERT_ENDS: Modules = &[
    ("embedding.tokens", named("bert.embeddings.word_embeddings")),
    ("embedding.positions", named("bert.embeddings.position_embeddings")),
    ("embedding.token_types", named("bert.embeddings.token_type_embeddings")),
    ("embedding.norm", named("bert.embeddings.LayerNorm")),
    ("head.transform", named("cls.predictions.transform.dense")),
    ("head.transform.norm", named("cls.predictions.transform.LayerNorm")),
    ("head:weight", bare("cls.predictions.decoder.weight")),
    ("head:bias", bare("cls.predictions.bias")),
];

const ROBERTA_ENDS: Modules = &[
    ("embedding.tokens", named("roberta.embeddings.word_embeddings")),
    ("embedding.positions", named("roberta.embeddings.position_embeddings")),
    ("embedding.token_types", named("roberta.embeddings.token_type_embeddings")),
    ("embedding.norm", named("roberta.embeddings.LayerNorm")),
    ("head.transform", named("lm_head.dense")),
    ("head.transform.norm", named("lm_head.layer_norm")),
    ("head:weight", bare("lm_head.decoder.weight")),
    ("head:bias", bare("lm_head.bias")),
];

const BERT_LAYER: Modules = &[
    ("attention.query", named("attention.self.query")),
    ("attention.key", named("attention.self.key")),
    ("attention.value", named("attention.self.value")),
    ("attention.output", named("attention.output.dense")),
    ("attention.norm", named("attention.output.LayerNorm")),
    ("mlp.up", named("intermediate.dense")),
    ("mlp.down", named("output.dense")),
    ("mlp.norm", named("output.LayerNorm")),
];

const VIT_ENDS: Modules = &[
    ("embedding.patches", named("vit.embeddings.patch_embeddings.projection")),
    ("embedding.class_token:weight", within("vit.embeddings.cls_token", 2)),
    ("embedding.positions:weight", within("vit.embeddings.position_embeddings", 1)),
    ("head.norm", named("vit.layernorm")),
    ("head", named("classifier")),
];

const VIT_LAYER: Modules = &[
    ("attention.norm", named("layernorm_before")),
    ("attention.query", named("attention.attention.query")),
    ("attention.key", named("attention.attention.key")),
    ("attention.value", named("attention.attention.value")),
    ("attention.output", named("attention.output.dense")),
    ("mlp.norm", named("layernorm_after")),
    ("mlp.up", named("intermediate.dense")),
    ("mlp.down", named("output.dense")),
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

/// What the names of GPT-2's layers begin with.
const GPT2: &str = "transformer.h.#.";

/// Parts of names of tensors that files may have beside the parameters: buffers of angles and masks, copies of a table
/// that others are tied to, poolers.
pub(super) const LEFT_OUT: &[&str] = &[
    "rotary_emb.inv_freq",
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "position_ids",
    "lm_head.weight",
    "lm_head.decoder.",
    "embed_out.weight",
    "cls.predictions.decoder.",
    "cls.seq_relationship.",
    "coder.embed_tokens.weight",
    ".pooler.",
];

/// The first of a class that has a name for each parameter is meant.
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
        &["DeepseekV3ForCausalLM", "deepseek_v3", "DeepseekV2ForCausalLM", "deepseek_v2"],
        &[("layer", LLAMA, &[LLAMA_NORMS, DEEPSEEK_LAYER, LLAMA_MLP, EXPERTS])],
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
        &["Olmo2ForCausalLM", "olmo2"],
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
    Family {
        classes: &["GPT2LMHeadModel", "gpt2", "gpt"],
        ends: GPT2_ENDS,
        layers: &[("layer", GPT2, &[GPT2_LAYER])],
    },
    Family {
        classes: &["GPTBigCodeForCausalLM", "gpt_bigcode"],
        ends: GPT2_ENDS,
        layers: &[("layer", GPT2, &[GPT_BIGCODE_LAYER])],
    },
    Family {
        classes: &["GPTJForCausalLM", "gptj"],
        ends: GPT2_ENDS,
        layers: &[("layer", GPT2, &[GPTJ_LAYER])],
    },
    Family {
        classes: &["GPTNeoXForCausalLM", "gpt_neox"],
        ends: NEOX_ENDS,
        layers: &[("layer", "gpt_neox.layers.#.", &[NEOX_LAYER])],
    },
    Family {
        classes: &["BloomForCausalLM", "bloom"],
        ends: BLOOM_ENDS,
        layers: &[("layer", GPT2, &[BLOOM_LAYER, LLAMA_NORMS])],
    },
    Family {
        classes: &["FalconForCausalLM", "falcon", "RWForCausalLM"],
        ends: BLOOM_ENDS,
        layers: &[("layer", GPT2, &[BLOOM_LAYER, LLAMA_NORMS, FALCON_NORMS])],
    },
    Family {
        classes: &["MptForCausalLM", "mpt", "MPTForCausalLM"],
        ends: MPT_ENDS,
        layers: &[("layer", "transformer.blocks.#.", &[MPT_LAYER])],
    },
    Family {
        classes: &["OPTForCausalLM", "opt"],
        ends: OPT_ENDS,
        layers: &[("layer", "model.decoder.layers.#.", &[OPT_LAYER, LLAMA_ATTENTION])],
    },
    Family {
        classes: &["T5ForConditionalGeneration", "t5", "T5WithLMHeadModel"],
        ends: T5_ENDS,
        layers: &[
            ("encoder", "encoder.block.#.", &[T5_ATTENTION, T5_ENCODER, T5_ENCODER_UP]),
            ("layer", "decoder.block.#.", &[T5_ATTENTION, T5_DECODER, T5_DECODER_UP]),
        ],
    },
    Family {
        classes: &["T5ForConditionalGeneration", "t5", "T5WithLMHeadModel"],
        ends: T5_ENDS,
        layers: &[
            ("encoder", "encoder.block.#.", &[T5_ATTENTION, T5_ENCODER, T5_ENCODER_GATED]),
            ("layer", "decoder.block.#.", &[T5_ATTENTION, T5_DECODER, T5_DECODER_GATED]),
        ],
    },
    Family {
        classes: &["BertForMaskedLM", "bert", "BertLMHeadModel"],
        ends: BERT_ENDS,
        layers: &[("layer", "bert.encoder.layer.#.", &[BERT_LAYER])],
    },
    Family {
        classes: &[
            "RobertaForMaskedLM",
            "roberta",
            "RobertaForCausalLM",
            "XLMRobertaForMaskedLM",
            "xlm-roberta",
            "XLMRobertaForCausalLM",
        ],
        ends: ROBERTA_ENDS,
        layers: &[("layer", "roberta.encoder.layer.#.", &[BERT_LAYER])],
    },
    Family {
        classes: &["ViTForImageClassification", "vit"],
        ends: VIT_ENDS,
        layers: &[("layer", "vit.encoder.layer.#.", &[VIT_LAYER])],
    },
];
