//! Descriptions that are wrong: what is said about them, and that nothing panics.

use ir::model::{AttentionKernel, GraphOptions, Model};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// What the transformers library refuses too, or fails to compute.
#[test]
fn configurations_that_transformers_cannot_run() {
    let with = |fields: &str| {
        format!(r#"{{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, {fields}}}"#)
    };
    check(
        &with(r#""num_attention_heads": 12, "head_dim": 16"#),
        "`hidden_size` 64 of `llama` is not a multiple of `num_attention_heads` 12 \
         (`num_attention_heads` 8 divides `hidden_size` 64)",
    );
    check(
        &with(r#""num_attention_heads": 8, "head_dim": 7"#),
        "`LlamaForCausalLM` with rotation of 7 features, which go in pairs, is not supported",
    );
    check(
        &with(r#""num_attention_heads": 8, "rope_scaling": 3"#),
        "field `rope_scaling` of `llama` must be an object, but is 3",
    );
    check(
        r#"{"model_type": "phi3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "max_position_embeddings": 8192, "original_max_position_embeddings": 4096, "rope_scaling":
            {"type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}}"#,
        "`Phi3ForCausalLM` with 3 numbers in `short_factor` for 8 pairs is not supported",
    );
    let falcon =
        r#"{"model_type": "falcon", "new_decoder_architecture": true, "parallel_attn": false}"#;
    assert_eq!(
        Model::numerics(falcon).unwrap_err().to_string(),
        "`falcon` with `new_decoder_architecture` without `parallel_attn` is not supported"
    );
    check(
        r#"{"model_type": "t5", "d_model": 64, "num_layers": 2, "relative_attention_num_buckets": 3}"#,
        "`t5` with 3 buckets of distances up to 128 is not supported",
    );
    check(
        r#"{"model_type": "zamba2", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
            "layers_block_type": ["hybrid", "mamba"], "attention_head_dim": 32}"#,
        "`zamba2` with `attention_head_dim` 32 in place of 64 is not supported",
    );
}

#[test]
fn an_error_says_what_and_what_would_work() {
    check("", "the model description is empty");
    check("{\n  \"a\": 1,,\n}", "not valid JSON, line 2, column 10: key must be a string");
    check("[1, 2]", "a model is described by a JSON object, but this is a list");
    check("\"llama\"", "a model is described by a JSON object, but this is a string");
    check(
        "{}",
        "cannot tell the architecture: `model_type`, `architecture` and `format` are all absent \
         (a Hugging Face `config.json` has `model_type`, the short form `architecture` (`gpt` or \
         `llama`), a native graph `format`)",
    );
    check(
        r#"{"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64}"#,
        "cannot tell the architecture: `model_type`, `architecture` and `format` are all absent \
         (`Qwen3MoeForCausalLM` is of `\"model_type\": \"qwen3_moe\"`)",
    );
    check(
        r#"{"architecture": "mamba"}"#,
        "architecture `mamba` is not known; known are `gpt`, `llama`; any other model can be written \
         as a native graph, with `\"format\": \"planner-graph\"`",
    );
    check(
        r#"{"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"]}"#,
        "class `LlamaForCausalLMEagle3` of `llama` is not supported; supported are `LlamaForCausalLM`, \
         `LLaMAForCausalLM`",
    );
    let with = |fields: &str| {
        format!(r#"{{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, {fields}}}"#)
    };
    check(
        r#"{"model_type": "llama", "num_hidden_layers": 2}"#,
        "field `hidden_size` is missing, which `llama` needs",
    );
    check(
        &with(r#""vocab_size": "many""#),
        "field `vocab_size` of `llama` must be a whole number, but is \"many\"",
    );
    check(
        &with(r#""vocab_size": -1"#),
        "field `vocab_size` of `llama` must be from 1 to 1099511627776, but is -1",
    );
    check(
        r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 100001}"#,
        "field `n_layer` of `gpt2` must be from 1 to 100000, but is 100001",
    );
    check(
        &with(r#""num_attention_heads": 12"#),
        "`hidden_size` 64 of `llama` is not a multiple of `num_attention_heads` 12 \
         (`num_attention_heads` 8 divides `hidden_size` 64)",
    );
    check(
        &with(r#""num_attention_heads": 8, "num_key_value_heads": 3"#),
        "`num_attention_heads` 8 of `LlamaForCausalLM` is not a multiple of `num_key_value_heads` 3 \
         (`num_key_value_heads` 2 divides `num_attention_heads` 8)",
    );
    check(
        &with(r#""hidden_act": "sine""#),
        "`hidden_act` `sine` of `llama` is no activation function that is known; known are `silu`, `swish`, `relu`, \
         `relu2`, `xielu`, `tanh`, `sigmoid`, `gelu`, `gelu_python`, `gelu_new`, `gelu_fast`, `gelu_pytorch_tanh`, \
         `gelu_accurate`, `gelu_python_tanh`, `quick_gelu`",
    );
    check(
        r#"{"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
            "num_experts_per_tok": 9}"#,
        "`MixtralForCausalLM` sends a token to 9 experts, but has 8 (`num_experts_per_tok` may be at \
         most 8)",
    );
    check(
        r#"{"model_type": "gpt_oss", "hidden_size": 1000000000000, "num_hidden_layers": 2,
            "intermediate_size": 1000000000000}"#,
        "`GptOssForCausalLM` of these sizes has about 7.7e26 parameters, more than 2^62",
    );
    check(
        r#"{"architecture": "gpt", "hidden_layers": 3}"#,
        "field `hidden_layers` of `gpt` is not known; known are `architecture`, `name`, \
         `num_hidden_layers`, `hidden_size`, `num_attention_heads`, `num_key_value_heads`, \
         `head_dim`, `intermediate_size`, `hidden_act`, `vocab_size`, `max_position_embeddings`, \
         `tie_word_embeddings`, `num_experts`, `num_experts_per_tok`, `moe_intermediate_size`",
    );
    check(
        r#"{"architecture": "gpt", "num_hidden_layers": 3}"#,
        "field `hidden_size` is missing, which `gpt` needs",
    );
}

#[test]
fn an_unknown_architecture_is_told_the_known_ones() {
    let error = Model::from_json(r#"{"model_type": "xlnet"}"#, "model").unwrap_err().to_string();
    for word in ["`xlnet`", "`llama`", "others", "native graph", "planner-graph"] {
        assert!(error.contains(word), "{error}");
    }
}

fn check(text: &str, expected: &str) {
    let error = Model::from_json(text, "model").unwrap_err();
    let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
    assert_eq!(format!("{error}{hint}"), expected);
}

/// A small configuration of every architecture.
fn configs() -> Vec<Map<String, Value>> {
    let families = [
        "bert",
        "bloom",
        "cohere",
        "cohere2",
        "deepseek_v2",
        "deepseek_v3",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "granite",
        "granitemoe",
        "granitemoeshared",
        "llama",
        "mistral",
        "mixtral",
        "mpt",
        "olmo",
        "olmo2",
        "olmoe",
        "opt",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "roberta",
        "starcoder2",
        "t5",
        "vit",
        "xlm-roberta",
    ];
    let of_family = |family: &str| {
        let text = r#"{
            "model_type": "FAMILY", "architectures": null, "hidden_size": 64, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
            "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32,
            "tie_word_embeddings": true, "num_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
            "moe_layer_freq": 1, "q_lora_rank": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4, "v_head_dim": 8, "num_nextn_predict_layers": 1,
            "sliding_window": 16, "sliding_window_pattern": 2, "use_sliding_window": true,
            "max_window_layers": 1, "layer_types": null, "decoder_sparse_step": 2,
            "mlp_only_layers": [1], "shared_expert_intermediate_size": 32,
            "shared_intermediate_size": 32, "attention_bias": true, "hidden_act": "silu",
            "feed_forward_proj": "gated-gelu", "num_decoder_layers": 2, "image_size": 32,
            "patch_size": 8, "num_channels": 3, "num_labels": 10, "word_embed_proj_dim": 32,
            "new_decoder_architecture": true, "num_ln_in_parallel_attn": 1, "use_qk_norm": true,
            "attention_dropout": 0.1, "type_vocab_size": 2, "n_layer": 4, "d_model": 64
        }"#;
        serde_json::from_str::<Value>(&text.replace("FAMILY", family)).unwrap()
    };
    let short = ["gpt", "llama"].map(|architecture| {
        json!({
            "architecture": architecture, "num_hidden_layers": 4, "hidden_size": 64,
            "num_attention_heads": 4, "vocab_size": 100, "num_experts": 4,
            "num_experts_per_tok": 2, "head_dim": 8,
        })
    });
    let all = families.into_iter().map(of_family).chain(short);
    all.map(|config| config.as_object().unwrap().clone()).collect()
}

#[test]
fn every_architecture_is_read() {
    for config in configs() {
        build(&Value::Object(config.clone()).to_string())
            .unwrap_or_else(|error| panic!("{:?}: {error}", config.values().next()));
    }
}

/// Reads, and for a model that is read also builds and counts it under all options.
fn build(text: &str) -> Result<(), ir::model::ModelError> {
    let model = Model::from_json(text, "model")?;
    for attention in [AttentionKernel::Flash, AttentionKernel::Unfused] {
        for multi_token_prediction in [false, true] {
            let options = GraphOptions { attention, dropout: true, multi_token_prediction };
            let counts = model.graph(options).expect("a model that is read has a graph");
            let counts = counts.parameter_counts();
            assert!(counts.total > 0 && counts.total < 1 << 62);
            assert!(counts.active <= counts.total && counts.routed <= counts.total);
        }
    }
    Ok(())
}

fn any_value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![0u64..20, Just(0), any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit)];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_]{0,12}".prop_map(Value::from),
        prop::sample::select(vec!["gelu", "full_attention", "mixtral"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |value| {
        prop_oneof![
            prop::collection::vec(value.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{0,8}", value, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A configuration of which some fields are left out or hold anything.
fn mutated() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), prop::option::of(any_value()));
    let changes = prop::collection::vec(change, 1..4);
    (prop::sample::select(configs()), changes).prop_map(|(mut config, changes)| {
        for (field, value) in changes {
            let names: Vec<String> = config.keys().cloned().collect();
            let name = field.get(&names).clone();
            match value {
                Some(value) => config.insert(name, value),
                None => config.remove(&name),
            };
        }
        Value::Object(config).to_string()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_configuration_is_refused_or_built(text in mutated()) {
        _ = build(&text);
    }

    #[test]
    fn any_text_is_refused_or_built(text in ".*") {
        _ = build(&text);
    }

    #[test]
    fn any_json_is_refused_or_built(value in any_value()) {
        _ = build(&value.to_string());
    }
}
