"""Makes the reference runs of every family of models: one tiny model of Hugging Face transformers for
each variant of a family, trained by PyTorch.

    python families.py [NAME ...]

Needs the packages that README.md names; takes half a minute on one core. It writes `families/NAME.json` for
each entry of `CONFIGS`, or for those that are named:

- `config`, the config.json, as a user would have it;
- `tensors`, the names and shapes that transformers saves;
- `loss`, `logits` and `gradients` of the first step, and `losses` and `final` parameters of the run.

Parameters and inputs are not stored: `uniform` derives each from a name and an index, and programs
that compare with these files do the same.
"""

import copy
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy
import safetensors.torch
import torch
import transformers
from make import ADAMW, HERE, NUM_STEPS, checkpoint, in_precision, make_optimizer, summary, write_json
from transformers.masking_utils import create_causal_mask
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3DecoderLayer,
    DeepseekV3ForCausalLM,
    DeepseekV3RMSNorm,
)

BATCH = 2  # sequences or images
SEQUENCE = 16  # tokens that have a target
NUM_LOGITS = 6  # stored for each sequence's last position
MTP_LOSS_WEIGHT = 0.3  # of the mean of the losses of modules for multi-token prediction

# Configurations. Dropout is zero, and sizes are as small as possible while they differ from each other;
# limits, windows and thresholds are so low that they take effect within the sequence. `pad_token_id` is
# null where the family allows it, because the library leaves out the gradient of that row.

DECODER = {
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 96,
}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


LLAMA = DECODER | {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "head_dim": 16,
    "mlp_bias": False,
    "model_type": "llama",
}

QWEN2 = DECODER | {
    "architectures": ["Qwen2ForCausalLM"],
    "max_window_layers": 1,
    "model_type": "qwen2",
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 5,
    "tie_word_embeddings": True,
    "use_sliding_window": True,
}

QWEN3_MOE = DECODER | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 16,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "output_router_logits": False,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "use_sliding_window": False,
}

QWEN2_MOE = DECODER | {
    "architectures": ["Qwen2MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "max_window_layers": 2,
    "mlp_only_layers": [],
    "model_type": "qwen2_moe",
    "moe_intermediate_size": 24,
    "norm_topk_prob": False,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "output_router_logits": False,
    "qkv_bias": True,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 40,
    "sliding_window": 5,
    "use_sliding_window": False,
}

GEMMA = DECODER | {
    "architectures": ["GemmaForCausalLM"],
    "attention_bias": False,
    "head_dim": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "model_type": "gemma",
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
}

GEMMA2 = without(GEMMA, "hidden_act") | {
    "architectures": ["Gemma2ForCausalLM"],
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "model_type": "gemma2",
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "query_pre_attn_scalar": 24,
    "sliding_window": 5,
}

GEMMA3 = without(GEMMA, "hidden_act") | {
    "architectures": ["Gemma3ForCausalLM"],
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "model_type": "gemma3_text",
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "query_pre_attn_scalar": 24,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "rope_theta": 1000000.0,
    "sliding_window": 5,
    "sliding_window_pattern": 3,
}

OLMO = without(DECODER, "rms_norm_eps") | {
    "architectures": ["OlmoForCausalLM"],
    "attention_bias": False,
    "clip_qkv": 0.5,
    "model_type": "olmo",
}

OLMO2 = DECODER | {
    "architectures": ["Olmo2ForCausalLM"],
    "attention_bias": False,
    "model_type": "olmo2",
    "rms_norm_eps": 1e-06,
    "rope_theta": 500000.0,
}

GLM4_MOE = DECODER | {
    "architectures": ["Glm4MoeForCausalLM"],
    "attention_bias": True,
    "first_k_dense_replace": 1,
    "head_dim": 16,
    "model_type": "glm4_moe",
    "moe_intermediate_size": 24,
    "n_group": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "partial_rotary_factor": 0.5,
    "routed_scaling_factor": 2.5,
    "topk_group": 1,
    "use_qk_norm": True,
}

SMOLLM3 = DECODER | {
    "architectures": ["SmolLM3ForCausalLM"],
    "attention_bias": False,
    "mlp_bias": False,
    "model_type": "smollm3",
    "no_rope_layer_interval": 2,
    "num_hidden_layers": 3,
    "tie_word_embeddings": True,
}

OLMOE = DECODER | {
    "architectures": ["OlmoeForCausalLM"],
    "attention_bias": False,
    "clip_qkv": None,
    "model_type": "olmoe",
    "norm_topk_prob": False,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.01,
}

PHI = without(DECODER, "rms_norm_eps") | {
    "architectures": ["PhiForCausalLM"],
    "embd_pdrop": 0.0,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-05,
    "model_type": "phi",
    "num_key_value_heads": 4,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": False,
    "resid_pdrop": 0.0,
}

PHI3 = DECODER | {
    "architectures": ["Phi3ForCausalLM"],
    "attention_bias": False,
    "embd_pdrop": 0.0,
    "hidden_size": 64,
    "model_type": "phi3",
    "original_max_position_embeddings": 64,
    "resid_pdrop": 0.0,
    "rope_scaling": None,
    "sliding_window": None,
}

LONGROPE = {
    "long_factor": [1.25, 2.0, 3.5, 5.0, 8.0, 12.0, 20.0, 24.0],
    "short_factor": [1.0, 1.05, 1.1, 1.25, 1.5, 1.75, 2.25, 2.5],
    "type": "longrope",
}

FALCON = {
    "activation": "gelu",
    "alibi": False,
    "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0,
    "bias": False,
    "ffn_hidden_size": 96,
    "hidden_dropout": 0.0,
    "hidden_size": 32,
    "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 64,
    "model_type": "falcon",
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": None,
    "parallel_attn": True,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 96,
}

FALCON_40B = FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}

GPT_NEOX = {
    "architectures": ["GPTNeoXForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.0,
    "classifier_dropout": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout": 0.0,
    "hidden_size": 64,
    "intermediate_size": 96,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 64,
    "model_type": "gpt_neox",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
    "tie_word_embeddings": False,
    "use_parallel_residual": True,
    "vocab_size": 96,
}

OPT = {
    "_remove_final_layer_norm": False,
    "activation_function": "relu",
    "architectures": ["OPTForCausalLM"],
    "attention_dropout": 0.0,
    "do_layer_norm_before": True,
    "dropout": 0.0,
    "enable_bias": True,
    "ffn_dim": 48,
    "hidden_size": 32,
    "layer_norm_elementwise_affine": True,
    "layerdrop": 0.0,
    "max_position_embeddings": 64,
    "model_type": "opt",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": None,
    "tie_word_embeddings": True,
    "vocab_size": 96,
    "word_embed_proj_dim": 32,
}

BLOOM = {
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["BloomForCausalLM"],
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "hidden_size": 32,
    "layer_norm_epsilon": 1e-05,
    "model_type": "bloom",
    "n_head": 4,
    "n_layer": 2,
    "pad_token_id": None,
    "tie_word_embeddings": True,
    "vocab_size": 96,
}

MPT = {
    "architectures": ["MptForCausalLM"],
    "attn_config": {
        "alibi": True,
        "alibi_bias_max": 8,
        "attn_impl": "torch",
        "attn_pdrop": 0,
        "attn_type": "multihead_attention",
        "attn_uses_sequence_id": False,
        "clip_qkv": None,
        "prefix_lm": False,
        "qk_ln": False,
        "softmax_scale": None,
    },
    "d_model": 32,
    "emb_pdrop": 0.0,
    "embedding_fraction": 1.0,
    "expansion_ratio": 4,
    "learned_pos_emb": True,
    "logit_scale": None,
    "max_seq_len": 64,
    "model_type": "mpt",
    "n_heads": 4,
    "n_layers": 2,
    "no_bias": True,
    "norm_type": "low_precision_layernorm",
    "resid_pdrop": 0.0,
    "tie_word_embeddings": True,
    "vocab_size": 96,
}

COHERE = without(DECODER, "rms_norm_eps") | {
    "architectures": ["CohereForCausalLM"],
    "attention_bias": False,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.25,
    "model_type": "cohere",
    "tie_word_embeddings": True,
    "use_qk_norm": False,
}

GRANITE = DECODER | {
    "architectures": ["GraniteForCausalLM"],
    "attention_bias": False,
    "attention_multiplier": 0.25,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "mlp_bias": False,
    "model_type": "granite",
    "residual_multiplier": 0.5,
    "tie_word_embeddings": True,
}

GRANITE_MOE = without(GRANITE, "mlp_bias") | {
    "architectures": ["GraniteMoeForCausalLM"],
    "model_type": "granitemoe",
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}

GPT2 = {
    "activation_function": "gelu_new",
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "layer_norm_epsilon": 1e-05,
    "n_embd": 32,
    "n_head": 4,
    "n_inner": None,
    "n_layer": 2,
    "n_positions": 64,
    "pad_token_id": None,
    "resid_pdrop": 0.0,
    "tie_word_embeddings": True,
    "vocab_size": 96,
}

GPT_BIGCODE = GPT2 | {
    "activation_function": "gelu_pytorch_tanh",
    "architectures": ["GPTBigCodeForCausalLM"],
    "attention_softmax_in_fp32": True,
    "model_type": "gpt_bigcode",
    "multi_query": True,
    "n_inner": 48,
    "scale_attention_softmax_in_fp32": True,
    "scale_attn_weights": True,
}

DEEPSEEK = DECODER | {
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 12,
    "moe_intermediate_size": 24,
    "moe_layer_freq": 1,
    "n_group": 2,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 16,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 4.0,
        "mscale": 0.707,
        "mscale_all_dim": 0.5,
        "original_max_position_embeddings": 256,
        "type": "yarn",
    },
    "max_position_embeddings": 1024,
    "routed_scaling_factor": 1.5,
    "topk_group": 1,
    "v_head_dim": 10,
}

DEEPSEEK_V2 = DEEPSEEK | {
    "architectures": ["DeepseekV2ForCausalLM"],
    "mlp_bias": False,
    "model_type": "deepseek_v2",
    "norm_topk_prob": False,
    "scoring_func": "softmax",
    "topk_method": "group_limited_greedy",
}

BERT = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 32,
    "intermediate_size": 48,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 64,
    "model_type": "bert",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": None,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "type_vocab_size": 2,
    "vocab_size": 96,
}

T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 48,
    "d_kv": 12,
    "d_model": 32,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.0,
    "feed_forward_proj": "relu",
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "num_decoder_layers": 3,
    "num_heads": 4,
    "num_layers": 2,
    "pad_token_id": 0,
    "relative_attention_max_distance": 12,
    "relative_attention_num_buckets": 8,
    "tie_word_embeddings": True,
    "vocab_size": 96,
}

ARCEE = DECODER | {
    "architectures": ["ArceeForCausalLM"],
    "attention_bias": False,
    "head_dim": 8,
    "hidden_act": "relu2",
    "mlp_bias": False,
    "model_type": "arcee",
}

GRANITE_SWA = GRANITE | {
    "architectures": ["GraniteSWAForCausalLM"],
    "layer_types": ["sliding_attention", "full_attention"],
    "model_type": "granite_swa",
    "sliding_window": 5,
}

STABLELM = without(DECODER, "rms_norm_eps") | {
    "architectures": ["StableLmForCausalLM"],
    "hidden_dropout": 0.0,
    "layer_norm_eps": 1e-05,
    "model_type": "stablelm",
    "partial_rotary_factor": 0.5,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "use_qkv_bias": True,
}

EXAONE4 = DECODER | {
    "architectures": ["Exaone4ForCausalLM"],
    "layer_types": ["sliding_attention", "full_attention"],
    "model_type": "exaone4",
    "sliding_window": 5,
}

MAMBA2 = {
    "mamba_chunk_size": 5,
    "mamba_d_conv": 3,
    "mamba_d_head": 8,
    "mamba_d_state": 6,
    "mamba_expand": 2,
    "mamba_n_groups": 2,
    "mamba_n_heads": 8,
}

# Layers as later versions of transformers call them.
GRANITE_HYBRID = (
    GRANITE_MOE
    | MAMBA2
    | {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 3,
        "position_embedding_type": "nope",
        "shared_intermediate_size": 40,
        "tie_word_embeddings": False,
    }
)

NEMOTRON_H = without(DECODER, "hidden_act", "rms_norm_eps", "rope_theta") | {
    "architectures": ["NemotronHForCausalLM"],
    "chunk_size": 5,
    "head_dim": 16,
    "hybrid_override_pattern": "M-*EM",
    "layer_norm_epsilon": 1e-05,
    "mamba_head_dim": 8,
    "mamba_num_heads": 8,
    "mlp_hidden_act": "relu2",
    "model_type": "nemotron_h",
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 20,
    "n_group": 1,
    "n_groups": 2,
    "n_routed_experts": 4,
    "norm_topk_prob": True,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 5,
    "routed_scaling_factor": 1.5,
    "ssm_state_size": 6,
    # So high that it takes effect.
    "time_step_min": 0.7,
    "topk_group": 1,
}

QWEN3_NEXT = without(QWEN3_MOE, "use_sliding_window", "sliding_window", "router_aux_loss_coef") | {
    "architectures": ["Qwen3NextForCausalLM"],
    "full_attention_interval": 3,
    "linear_conv_kernel_dim": 3,
    "linear_key_head_dim": 6,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 10,
    "model_type": "qwen3_next",
    "num_experts": 4,
    "partial_rotary_factor": 0.25,
    "shared_expert_intermediate_size": 40,
}

QWEN3_5 = without(
    QWEN3_NEXT,
    "decoder_sparse_step",
    "mlp_only_layers",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "output_router_logits",
    "shared_expert_intermediate_size",
) | {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}

LFM2 = without(DECODER, "attention_dropout", "hidden_act", "rms_norm_eps", "rope_theta") | {
    "architectures": ["Lfm2ForCausalLM"],
    "block_auto_adjust_ff_dim": False,
    "conv_L_cache": 3,
    "conv_bias": True,
    "full_attn_idxs": [1],
    "model_type": "lfm2",
    "norm_eps": 1e-05,
    "num_hidden_layers": 3,
    "tie_word_embeddings": True,
}

CONFIGS = {
    "llama_yarn": LLAMA
    | {
        "max_position_embeddings": 1024,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 256, "rope_type": "yarn"},
    },
    # All options of YaRN, and the key `type` of older configurations.
    "llama_yarn_options": LLAMA
    | {
        "max_position_embeddings": 1024,
        "rope_scaling": {
            "attention_factor": 1.25,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "factor": 4.0,
            "original_max_position_embeddings": 256,
            "truncate": False,
            "type": "yarn",
        },
    },
    "llama_linear": LLAMA | {"rope_scaling": {"factor": 4.0, "type": "linear"}},
    # Sequences longer than the limit.
    "llama_dynamic": LLAMA
    | {"max_position_embeddings": 8, "rope_scaling": {"factor": 2.0, "rope_type": "dynamic"}},
    "llama_attention_bias": LLAMA | {"attention_bias": True, "mlp_bias": True},
    # As later versions of transformers write it.
    "llama_rope_parameters": without(LLAMA, "rope_theta")
    | {"rope_parameters": {"factor": 2.0, "rope_theta": 5000.0, "rope_type": "linear"}},
    "mistral": DECODER
    | {"architectures": ["MistralForCausalLM"], "head_dim": 16, "model_type": "mistral", "sliding_window": 5},
    "qwen2": QWEN2,
    "qwen3": QWEN2
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "head_dim": 16,
        "model_type": "qwen3",
        "use_sliding_window": False,
    },
    "qwen3_window": QWEN2
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": True,
        "head_dim": 16,
        "model_type": "qwen3",
        "tie_word_embeddings": False,
    },
    "qwen3_moe": QWEN3_MOE,
    "qwen3_moe_plain": QWEN3_MOE | {"mlp_only_layers": [1], "norm_topk_prob": False},
    "qwen3_moe_window": QWEN3_MOE
    | {"attention_bias": True, "num_hidden_layers": 2, "sliding_window": 5, "use_sliding_window": True},
    "qwen2_moe": QWEN2_MOE,
    "qwen2_moe_options": QWEN2_MOE
    | {
        "decoder_sparse_step": 2,
        "norm_topk_prob": True,
        "num_hidden_layers": 4,
        "qkv_bias": False,
        "use_sliding_window": True,
    },
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "gemma3_text_softcap": GEMMA3 | {"final_logit_softcapping": 3.0, "rope_scaling": None},
    "olmo": OLMO,
    "olmo2": OLMO2,
    "olmoe": OLMOE,
    "olmoe_normalised": OLMOE | {"clip_qkv": 0.5, "norm_topk_prob": True},
    "phi": PHI,
    "phi_qk_layernorm": PHI | {"num_key_value_heads": 2, "qk_layernorm": True},
    "phi3": PHI3,
    "phi3_longrope_long": PHI3 | {"original_max_position_embeddings": 8, "rope_scaling": LONGROPE},
    "phi3_longrope_short": PHI3 | {"max_position_embeddings": 128, "rope_scaling": LONGROPE},
    "phi3_partial": PHI3 | {"partial_rotary_factor": 0.5, "sliding_window": 5},
    "phi3_partial_longrope": PHI3
    | {
        "original_max_position_embeddings": 8,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {key: value[:6] if isinstance(value, list) else value for key, value in LONGROPE.items()},
    },
    "falcon_7b": FALCON,
    "falcon_40b": FALCON_40B,
    "falcon_11b": FALCON_40B | {"num_ln_in_parallel_attn": 1, "tie_word_embeddings": False},
    "falcon_rw": FALCON | {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    "gpt_neox": GPT_NEOX,
    "gpt_neox_sequential": GPT_NEOX | {"attention_bias": False, "use_parallel_residual": False},
    "gptj": without(GPT2, "scale_attn_weights")
    | {
        "architectures": ["GPTJForCausalLM"],
        "model_type": "gptj",
        "rotary_dim": 4,
        "tie_word_embeddings": False,
    },
    "opt": OPT,
    "opt_350m": OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 16},
    "opt_no_bias": OPT
    | {"activation_function": "gelu", "enable_bias": False, "layer_norm_elementwise_affine": False},
    "bloom": BLOOM,
    # Slopes of a number of heads that is not a power of two.
    "bloom_6_heads": BLOOM | {"hidden_size": 48, "n_head": 6},
    "bloom_post_layernorm": BLOOM | {"apply_residual_connection_post_layernorm": True},
    "mpt": MPT,
    "mpt_6_heads": MPT
    | {
        "attn_config": MPT["attn_config"] | {"clip_qkv": 0.5, "softmax_scale": 0.2},
        "d_model": 48,
        "n_heads": 6,
    },
    "cohere": COHERE,
    "cohere_qk_norm": COHERE | {"attention_bias": True, "use_qk_norm": True},
    "cohere2": without(COHERE, "use_qk_norm")
    | {
        "architectures": ["Cohere2ForCausalLM"],
        "model_type": "cohere2",
        "num_hidden_layers": 3,
        "sliding_window": 5,
        "sliding_window_pattern": 3,
    },
    "starcoder2": without(DECODER, "rms_norm_eps")
    | {
        "architectures": ["Starcoder2ForCausalLM"],
        "embedding_dropout": 0.0,
        "hidden_act": "gelu_pytorch_tanh",
        "mlp_type": "default",
        "model_type": "starcoder2",
        "norm_epsilon": 1e-05,
        "norm_type": "layer_norm",
        "residual_dropout": 0.0,
        "sliding_window": 5,
        "tie_word_embeddings": True,
        "use_bias": True,
    },
    "arcee": ARCEE,
    "nemotron": without(ARCEE, "rms_norm_eps")
    | {
        "architectures": ["NemotronForCausalLM"],
        "model_type": "nemotron",
        "norm_eps": 1e-05,
        "partial_rotary_factor": 0.5,
    },
    "jais2": without(ARCEE, "rms_norm_eps")
    | {
        "architectures": ["Jais2ForCausalLM"],
        "attention_bias": True,
        "layer_norm_eps": 1e-05,
        "mlp_bias": True,
        "model_type": "jais2",
    },
    "persimmon": without(DECODER, "rms_norm_eps", "num_key_value_heads")
    | {
        "architectures": ["PersimmonForCausalLM"],
        "hidden_act": "relu2",
        "hidden_dropout": 0.0,
        "layer_norm_eps": 1e-05,
        "model_type": "persimmon",
        "partial_rotary_factor": 0.5,
        "qk_layernorm": True,
    },
    "stablelm": STABLELM,
    "stablelm_parallel": STABLELM | {"use_parallel_residual": True, "use_qkv_bias": False},
    "glm": DECODER
    | {
        "architectures": ["GlmForCausalLM"],
        "attention_bias": True,
        "head_dim": 16,
        "model_type": "glm",
        "partial_rotary_factor": 0.5,
    },
    "exaone4": EXAONE4,
    "exaone_moe": EXAONE4
    | {
        "architectures": ["ExaoneMoeForCausalLM"],
        "first_k_dense_replace": 1,
        "mlp_layer_types": ["dense", "sparse"],
        "model_type": "exaone_moe",
        "moe_intermediate_size": 24,
        "n_group": 1,
        "norm_topk_prob": True,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_shared_experts": 1,
        "routed_scaling_factor": 2.5,
        "topk_group": 1,
    },
    "ernie4_5_moe": DECODER
    | {
        "architectures": ["Ernie4_5_MoeForCausalLM"],
        "model_type": "ernie4_5_moe",
        "moe_intermediate_size": 24,
        "moe_k": 2,
        "moe_layer_end_index": -1,
        "moe_layer_interval": 1,
        "moe_layer_start_index": 1,
        "moe_num_experts": 4,
        "moe_num_shared_experts": 2,
        "use_bias": False,
    },
    "solar_open": without(GLM4_MOE, "use_qk_norm", "partial_rotary_factor")
    | {"architectures": ["SolarOpenForCausalLM"], "attention_bias": False, "model_type": "solar_open"},
    "granite_swa": GRANITE_SWA,
    "granitemoe_swa": without(GRANITE_SWA, "mlp_bias")
    | {
        "architectures": ["GraniteMoeSWAForCausalLM"],
        "model_type": "granitemoe_swa",
        "num_experts_per_tok": 2,
        "num_local_experts": 4,
        "output_router_logits": False,
        "shared_intermediate_size": 40,
    },
    "helium": DECODER
    | {
        "architectures": ["HeliumForCausalLM"],
        "attention_bias": False,
        "head_dim": 8,
        "mlp_bias": False,
        "model_type": "helium",
    },
    "internlm3": DECODER
    | {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "head_dim": 16,
        "mlp_bias": False,
        "model_type": "internlm3",
    },
    "flex_olmo": DECODER
    | {
        "architectures": ["FlexOlmoForCausalLM"],
        "attention_bias": False,
        "intermediate_size": 24,
        "model_type": "flex_olmo",
        "norm_topk_prob": False,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "output_router_logits": False,
    },
    "afmoe": DECODER
    | {
        "architectures": ["AfmoeForCausalLM"],
        "attention_bias": False,
        "head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "model_type": "afmoe",
        "moe_intermediate_size": 24,
        "mup_enabled": True,
        "num_dense_layers": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_shared_experts": 1,
        "route_scale": 1.5,
        "sliding_window": 5,
    },
    "glm4_moe_lite": DEEPSEEK
    | {
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "model_type": "glm4_moe_lite",
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.8,
    },
    "granite": GRANITE,
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": GRANITE_MOE
    | {
        "architectures": ["GraniteMoeSharedForCausalLM"],
        "model_type": "granitemoeshared",
        "shared_intermediate_size": 40,
    },
    "gpt_oss": DECODER
    | {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "head_dim": 16,
        "initial_context_length": 4096,
        "intermediate_size": 24,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_experts_per_tok": 2,
        "num_local_experts": 4,
        "output_router_logits": False,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.0,
        "sliding_window": 5,
        "swiglu_limit": 1.5,
    },
    "gpt_bigcode": GPT_BIGCODE,
    "gpt_bigcode_multi_head": GPT_BIGCODE | {"multi_query": False},
    "gpt2_inverse_layer": GPT2
    | {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": 3,
        "scale_attn_by_inverse_layer_idx": True,
        "scale_attn_weights": True,
    },
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v2_lite": DEEPSEEK_V2 | {"n_group": 1, "q_lora_rank": None, "topk_method": "greedy"},
    "deepseek_v3": DEEPSEEK
    | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 0,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    },
    "deepseek_v3_modules": DEEPSEEK
    | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 2,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    },
    "glm4": DECODER
    | {
        "architectures": ["Glm4ForCausalLM"],
        "attention_bias": True,
        "head_dim": 16,
        "model_type": "glm4",
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-06,
    },
    "glm4_moe": GLM4_MOE,
    "glm4_moe_options": GLM4_MOE
    | {
        "attention_bias": False,
        "first_k_dense_replace": 0,
        "n_group": 4,
        "n_shared_experts": 2,
        "norm_topk_prob": False,
        "topk_group": 2,
        "use_qk_norm": False,
    },
    "dots1": GLM4_MOE
    | {
        "architectures": ["Dots1ForCausalLM"],
        "attention_bias": False,
        "model_type": "dots1",
        "n_shared_experts": 2,
        "partial_rotary_factor": 1.0,
        "sliding_window": None,
    },
    "minimax_m2": DECODER
    | {
        "architectures": ["MiniMaxM2ForCausalLM"],
        "head_dim": 16,
        "intermediate_size": 24,
        "model_type": "minimax_m2",
        "num_experts_per_tok": 2,
        "num_local_experts": 6,
        "output_router_logits": False,
        "rotary_dim": 8,
        "router_aux_loss_coef": 0.0,
        "router_jitter_noise": 0.0,
    },
    "smollm3": SMOLLM3,
    "smollm3_window": SMOLLM3
    | {
        "attention_bias": True,
        "mlp_bias": True,
        "no_rope_layers": [1, 0, 0],
        "sliding_window": 5,
        "tie_word_embeddings": False,
        "use_sliding_window": True,
    },
    "seed_oss": DECODER
    | {
        "architectures": ["SeedOssForCausalLM"],
        "attention_bias": True,
        "attention_out_bias": False,
        "head_dim": 16,
        "mlp_bias": False,
        "model_type": "seed_oss",
        "residual_dropout": 0.0,
    },
    "ernie4_5": without(DECODER, "attention_dropout")
    | {
        "architectures": ["Ernie4_5ForCausalLM"],
        "head_dim": 16,
        "model_type": "ernie4_5",
        "tie_word_embeddings": True,
        "use_bias": True,
    },
    "olmo3": OLMO2
    | {
        "architectures": ["Olmo3ForCausalLM"],
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "model_type": "olmo3",
        "num_hidden_layers": 3,
        "rope_scaling": {
            "attention_factor": 1.2,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 8.0,
            "original_max_position_embeddings": 8,
            "rope_type": "yarn",
        },
        "sliding_window": 5,
    },
    "mixtral": DECODER
    | {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_experts_per_tok": 2,
        "num_local_experts": 4,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.0,
        "router_jitter_noise": 0.0,
        "sliding_window": 5,
    },
    "bert": BERT,
    # A vocabulary so large that the padding token is not among the tokens that are drawn.
    "roberta": BERT
    | {
        "architectures": ["RobertaForMaskedLM"],
        "layer_norm_eps": 1e-05,
        "model_type": "roberta",
        "pad_token_id": 4,
        "type_vocab_size": 1,
        "vocab_size": 208,
    },
    "t5": T5,
    "t5_flan": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "granitemoehybrid": GRANITE_HYBRID,
    # Without experts, with rotation, and with limits that take effect.
    "granitemoehybrid_dense": GRANITE_HYBRID
    | {
        "layer_types": ["mamba", "attention", "mamba"],
        "mamba_conv_bias": False,
        "mamba_n_groups": 1,
        "mamba_proj_bias": True,
        "num_local_experts": 0,
        "position_embedding_type": "rope",
        "time_step_limit": [0.4, 0.9],
    },
    "bamba": DECODER
    | MAMBA2
    | {
        "architectures": ["BambaForCausalLM"],
        "attn_layer_indices": [1],
        "model_type": "bamba",
        "num_hidden_layers": 3,
        "partial_rotary_factor": 0.5,
    },
    "mamba2": {
        "architectures": ["Mamba2ForCausalLM"],
        "chunk_size": 5,
        "conv_kernel": 4,
        "expand": 2,
        "head_dim": 8,
        "hidden_act": "silu",
        "hidden_size": 32,
        "layer_norm_epsilon": 1e-05,
        "model_type": "mamba2",
        "n_groups": 2,
        "num_heads": 8,
        "num_hidden_layers": 2,
        "pad_token_id": None,
        "residual_in_fp32": False,
        "state_size": 6,
        "tie_word_embeddings": False,
        "vocab_size": 96,
    },
    "nemotron_h": NEMOTRON_H,
    "nemotron_h_latent": NEMOTRON_H
    | {"hybrid_override_pattern": "ME*", "moe_latent_size": 12, "num_hidden_layers": 3, "use_bias": True},
    "qwen3_next": QWEN3_NEXT,
    "qwen3_5_text": QWEN3_5,
    "qwen3_5_moe_text": without(QWEN3_NEXT, "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob")
    | {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text"},
    "lfm2": LFM2,
    "vit": {
        "architectures": ["ViTForImageClassification"],
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": 32,
        "id2label": {str(label): f"LABEL_{label}" for label in range(5)},
        "image_size": 8,
        "intermediate_size": 48,
        "label2id": {f"LABEL_{label}": label for label in range(5)},
        "layer_norm_eps": 1e-12,
        "model_type": "vit",
        "num_attention_heads": 4,
        "num_channels": 3,
        "num_hidden_layers": 2,
        "patch_size": 4,
        "qkv_bias": True,
    },
}


def uniform(name, count):
    """`count` numbers in [0, 1) that follow from the name: outputs of SplitMix64 (Steele, Lea and Flood,
    2014) whose state starts at the FNV-1a hash of the name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    x = numpy.uint64(state) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    z = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53


def value(name, shape):
    """Values of a tensor's parameters. Norms are near one, and biases are not zero, so that no mistake in
    them goes unseen."""
    centre, scale = 0.0, 0.35
    if len(shape) == 1:
        centre, scale = (1.0 if name.endswith("weight") else 0.0), 0.2
    numbers = centre + scale * (2.0 * uniform(name, math.prod(shape)) - 1.0)
    return torch.from_numpy(numbers.astype(numpy.float32).reshape(shape))


def batches(config, dtype):
    """For each step, the arguments of the model and the targets of its logits."""
    if config["model_type"] == "vit":
        shape = NUM_STEPS, BATCH, config["num_channels"], config["image_size"], config["image_size"]
        pixels = torch.from_numpy(2.0 * uniform("pixels", math.prod(shape)) - 1.0).reshape(shape)
        labels = torch.from_numpy(numpy.floor(uniform("labels", NUM_STEPS * BATCH) * len(config["id2label"])))
        for images, targets in zip(pixels, labels.long().reshape(NUM_STEPS, BATCH)):
            yield {"pixel_values": images.to(dtype)}, targets
        return
    shape = NUM_STEPS, BATCH, SEQUENCE + 1
    tokens = torch.from_numpy(numpy.floor(uniform("tokens", math.prod(shape)) * config["vocab_size"]))
    for rows in tokens.long().reshape(shape):
        inputs = rows[:, :-1]
        arguments = {"input_ids": inputs}
        match config["model_type"]:
            case "bert" | "roberta":
                arguments["attention_mask"] = torch.ones_like(inputs)
                # The position of the padding token would not depend on its place in the sequence.
                assert config["pad_token_id"] not in inputs.flatten().tolist()
            case "t5":
                arguments |= {"decoder_input_ids": inputs, "use_cache": False}
            case _:
                arguments["use_cache"] = False
        yield arguments, rows[:, 1:]


class DeepseekV3WithModules(DeepseekV3ForCausalLM):
    """DeepSeek-V3 with its modules for multi-token prediction, which transformers leaves out. They follow section 2.2
    of the paper (arXiv 2412.19437), with the library's layers and the names of the released checkpoint."""

    def __init__(self, config):
        super().__init__(config)
        width, epsilon = config.hidden_size, config.rms_norm_eps
        for index in range(config.num_nextn_predict_layers):
            layer = DeepseekV3DecoderLayer(config, config.num_hidden_layers + index)
            layer.enorm, layer.hnorm = DeepseekV3RMSNorm(width, epsilon), DeepseekV3RMSNorm(width, epsilon)
            layer.eh_proj = torch.nn.Linear(2 * width, width, bias=False)
            layer.shared_head = torch.nn.ModuleDict({"norm": DeepseekV3RMSNorm(width, epsilon)})
            self.model.layers.append(layer)
        # The input of the first module is not normalised yet.
        self.model.norm.register_forward_pre_hook(lambda _, inputs: setattr(self, "last_hidden", inputs[0]))

    def further_loss(self, targets):
        """The modules' losses on the tokens after `targets`, times their weight; beyond the end there is no target."""
        hidden, modules = self.__dict__.pop("last_hidden"), self.model.layers[self.config.num_hidden_layers :]
        positions = torch.arange(targets.shape[1])[None]
        angles = self.model.rotary_emb(hidden, positions)
        mask = create_causal_mask(
            config=self.config, inputs_embeds=hidden, attention_mask=None, past_key_values=None, position_ids=positions
        )
        pad, total = torch.nn.functional.pad, 0.0
        for ahead, module in enumerate(modules, 1):
            embedded = self.model.embed_tokens(pad(targets[:, ahead - 1 :], (0, ahead - 1), value=0))
            joined = torch.cat([module.enorm(embedded), module.hnorm(hidden)], dim=-1)
            hidden = module(module.eh_proj(joined), attention_mask=mask, position_embeddings=angles)
            logits = self.lm_head(module.shared_head["norm"](hidden)).flatten(0, -2)
            further = pad(targets[:, ahead:], (0, ahead), value=-100).flatten()
            total += torch.nn.functional.cross_entropy(logits, further, reduction="sum") / further.numel()
        return MTP_LOSS_WEIGHT * total / len(modules)


def load(config, dtype):
    """The model, read from a folder that has its parameters under the names of a checkpoint."""
    Model = getattr(transformers, config["architectures"][0])
    if config.get("num_nextn_predict_layers"):
        Model = DeepseekV3WithModules
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        fresh = Model(transformers.AutoConfig.from_pretrained(folder))
        shapes = {name: list(tensor.shape) for name, tensor in checkpoint(fresh).items()}
        if config["model_type"] == "t5" and not config["tie_word_embeddings"]:
            # A fresh T5 model is always tied; a model that finds both weights in its checkpoint is untied.
            shapes["lm_head.weight"] = shapes["shared.weight"]
        values = {name: value(name, shape) for name, shape in sorted(shapes.items())}
        safetensors.torch.save_file(values, folder / "model.safetensors", {"format": "pt"})
        model, report = Model.from_pretrained(
            folder,
            dtype=dtype,
            # With "eager" Falcon adds the biases of ALiBi twice: by the mask, and again to the scores.
            attn_implementation="sdpa" if config["model_type"] == "falcon" else "eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
    assert not any(report.values()), report
    saved = checkpoint(model)
    assert saved.keys() == values.keys(), saved.keys() ^ values.keys()
    for name, tensor in values.items():
        assert saved[name].dtype == dtype and torch.equal(saved[name], tensor.to(dtype)), name
    return model.train(), {name: shapes[name] for name in values}


def gradients(model):
    """Sum, L2 norm and first and last element of each parameter's gradient, by its name in a checkpoint."""
    holder = copy.deepcopy(model)
    with torch.no_grad():
        for place, parameter in zip(holder.parameters(), model.parameters()):
            # Parameters that are not trained have no gradient.
            place.copy_(torch.zeros_like(place) if parameter.grad is None else parameter.grad)
    return {
        name: {
            "sum": tensor.double().sum().item(),
            "norm": tensor.double().norm().item(),
            "first": tensor.flatten()[0].item(),
            "last": tensor.flatten()[-1].item(),
        }
        for name, tensor in sorted(checkpoint(holder).items())
    }


def train(config, dtype):
    model, shapes = load(config, dtype)
    # Files may have another name for a router's buffer than the model.
    buffers = {name for name, _ in model.named_buffers()} | {name for name in shapes if "correction" in name}
    optimizer = make_optimizer(model, ADAMW)
    record = {"dtype": str(dtype).removeprefix("torch."), "config": config, "tensors": shapes}
    losses = []
    for arguments, targets in batches(config, dtype):
        logits = model(**arguments).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
        if isinstance(model, DeepseekV3WithModules):
            loss = loss + model.further_loss(targets)
        assert loss.dtype == dtype
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            record["loss"] = loss.item()
            rows = logits.reshape(BATCH, -1, logits.shape[-1])
            first_logits = rows[:, -1, :NUM_LOGITS].tolist()
            first_gradients = without(gradients(model), *buffers)
        optimizer.step()
        losses.append(loss.item())
    final = without(summary(model, lambda parameter: parameter), *buffers)
    return record | {"losses": losses, "logits": first_logits, "gradients": first_gradients, "final": final}


def rounded(item):
    """The same numbers with 13 significant digits, as many as two implementations agree on."""
    match item:
        case float():
            return float(f"{item:.13g}")
        case dict():
            return {key: rounded(inner) for key, inner in item.items()}
        case list():
            return [rounded(inner) for inner in item]
    return item


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    folder = HERE / "families"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CONFIGS:
        with in_precision(torch.float64):
            record = train(CONFIGS[name], torch.float64)
        write_json(folder / f"{name}.json", rounded({"versions": versions} | record))
        losses = record["losses"]
        print(name, record["dtype"], losses[0], losses[-1], flush=True)


if __name__ == "__main__":
    main()
