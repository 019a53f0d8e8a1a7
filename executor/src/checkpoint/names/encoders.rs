//! Models with an encoder.

use super::family::{Family, Modules};
use super::module::{bare, named, within};

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

pub(super) static FAMILIES: &[Family] = &[
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
