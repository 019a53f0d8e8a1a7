//! Decoders whose names are GPT-2's, or their own.

use super::family::{Family, Modules};
use super::llama::{LLAMA_ATTENTION, LLAMA_NORMS};
use super::module::{QKV_BY_HEAD, QKV_EVENLY, QKV_IN_ORDER, conv1d, named};

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

/// What the names of GPT-2's layers begin with.
const GPT2: &str = "transformer.h.#.";

pub(super) static FAMILIES: &[Family] = &[
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
];
