//! What of a configuration may not be meant is said by name, and nothing of configurations that people have.

use std::fs;
use std::path::Path;

use ir::model::{GraphOptions, Model};
use serde_json::{Value, json};

fn warnings(config: &Value) -> Vec<String> {
    warnings_of(&config.to_string())
}

fn warnings_of(text: &str) -> Vec<String> {
    let model = Model::from_json(text, "model").unwrap();
    model.warnings.iter().map(ToString::to_string).collect()
}

/// A whole Llama, with what releases have in addition to sizes.
fn llama() -> Value {
    json!({
        "_name_or_path": "meta-llama/Llama-3.1-8B", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 128_000, "eos_token_id": [128_001, 128_008, 128_009], "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14_336,
        "max_position_embeddings": 131_072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "pad_token_id": 128_004, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_theta": 500_000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "rope_scaling": {
            "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "transformers_version": "4.43.0", "use_cache": true, "vocab_size": 128_256, "unsloth_fixed": true,
    })
}

fn with(mut config: Value, field: &str, value: Value) -> Value {
    config[field] = value;
    config
}

fn without(mut config: Value, field: &str) -> Value {
    config.as_object_mut().unwrap().remove(field);
    config
}

/// What reads more than text is planned as its language model, where that is known, and this is said.
#[test]
fn language_models_of_what_reads_images() {
    let inner = without(llama(), "tie_word_embeddings");
    let whole = json!({
        "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": inner,
        "tie_word_embeddings": true, "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024},
    });
    let read = |config: &Value| Model::from_json(&config.to_string(), "model");
    let parameters = |config: &Value| {
        read(config).unwrap().graph(GraphOptions::default()).unwrap().parameter_counts().total
    };
    let found = warnings(&whole);
    assert!(
        found.len() == 1 && found[0].contains("`llava`") && found[0].contains("`llama`"),
        "{found:?}"
    );
    assert_eq!(parameters(&whole), parameters(&with(llama(), "tie_word_embeddings", json!(true))));
    assert!(parameters(&whole) < parameters(&llama()));
    // The sizes of language models that transformers builds, without what is called `visual`.
    let sizes = json!({
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 96, "vocab_size": 1000, "tie_word_embeddings": false,
    });
    let text = |name: &str| with(sizes.clone(), "model_type", json!(name));
    let heads = |name: &str| with(text(name), "head_dim", json!(16));
    let mut experts = heads("qwen3_vl_moe_text");
    for (field, value) in
        [("num_experts", 4), ("num_experts_per_tok", 2), ("moe_intermediate_size", 40)]
    {
        experts[field] = json!(value);
    }
    let wrapped = |name: &str, text: Value| json!({"model_type": name, "text_config": text, "vision_config": {}});
    for (config, total) in [
        (with(text("qwen2_5_vl"), "vision_config", json!({"depth": 32})), 185_856),
        (wrapped("qwen2_5_vl", text("qwen2_5_vl_text")), 185_856),
        (wrapped("qwen2_vl", text("qwen2_vl_text")), 185_856),
        (wrapped("qwen3_vl", heads("qwen3_vl_text")), 206_208),
        (wrapped("qwen3_vl_moe", experts), 231_296),
    ] {
        assert_eq!(parameters(&config), total, "{config}");
        let found = warnings(&config);
        assert!(found.len() == 1 && found[0].contains("language model alone"), "{found:?}");
    }
    let detector = json!({
        "architectures": ["GroundingDinoForObjectDetection"], "model_type": "grounding-dino",
        "text_config": {"model_type": "bert", "hidden_size": 768}, "backbone_config": {"model_type": "swin"},
    });
    assert_eq!(
        read(&detector).unwrap_err().to_string(),
        "`grounding-dino` with a `bert` that reads text, which is no language model, is not supported"
    );
    let unknown = with(whole, "text_config", json!({"model_type": "rwkv"}));
    assert!(read(&unknown).unwrap_err().to_string().contains("`rwkv` is not known"));
}

/// The class of the whole says which head the language model has; one that is not known is said.
#[test]
fn classes_of_what_reads_images() {
    let whole = |class: &str| {
        json!({
            "architectures": [class], "model_type": "llava", "text_config": llama(),
            "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024},
        })
    };
    for (class, read_as) in [
        ("LlavaForConditionalGeneration", "LlamaForCausalLM"),
        ("FSDPLlavaForConditionalGeneration", "LlamaForCausalLM"),
        ("LlavaModel", "LlamaModel"),
        ("LlavaForSequenceClassification", "LlamaForSequenceClassification"),
        ("LlavaForTokenClassification", "LlamaForTokenClassification"),
    ] {
        let model = Model::from_json(&whole(class).to_string(), "model").unwrap();
        assert_eq!((model.architecture.as_str(), model.warnings.len()), (read_as, 1), "{class}");
        let numerics = Model::numerics(&whole(class).to_string());
        assert_eq!(numerics.is_ok(), read_as == "LlamaForCausalLM", "{class} is run");
    }
    let found = warnings(&whole("LlavaForRetrieval"));
    assert_eq!(
        found[1],
        "class `LlavaForRetrieval` of `llava` is not known: its language model is planned with the head that predicts \
         tokens"
    );
}

/// Sections that are not read are said by name, and not those that are.
#[test]
fn parts_that_are_not_read_are_said() {
    let omni = json!({
        "architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni", "talker_config": {"hidden_size": 896},
        "thinker_config": {"text_config": with(llama(), "model_type", json!("qwen2_5_omni_text"))},
        "token2wav_config": {"dit_config": {}},
    });
    assert_eq!(
        warnings(&omni)[0],
        "`qwen2_5_omni` is counted and planned without `talker_config`, `token2wav_config`"
    );
    let other =
        json!({"model_type": "other", "llm_config": llama(), "vision_config": {"depth": 3}});
    let found = warnings(&other);
    assert!(
        found.len() == 1 && found[0].ends_with("is left out, and `vision_config` not read"),
        "{found:?}"
    );
}

/// A configuration of an unknown family is read as another wherever its sizes are, an encoder as an encoder.
#[test]
fn unknown_families_are_read_as_others() {
    let inner = with(llama(), "model_type", json!("mine"));
    let whole =
        json!({"model_type": "mine_vl", "text_config": inner, "vision_config": {"depth": 3}});
    let (read, unread) = Model::as_family(&whole.to_string(), "llama").unwrap();
    assert_eq!(unread, ["unsloth_fixed", "vision_config"]);
    let parameters = |text: &str| {
        let model = Model::from_json(text, "model").unwrap();
        model.graph(GraphOptions::default()).unwrap().parameter_counts().total
    };
    assert_eq!(parameters(&read), parameters(&llama().to_string()));
    let nearest = |config: &Value| Model::nearest_family(&config.to_string()).map(|it| it.0);
    assert_eq!(nearest(&whole), Some("llama"));
    let mpnet = json!({
        "architectures": ["MPNetForMaskedLM"], "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
        "max_position_embeddings": 514, "model_type": "mpnet", "num_attention_heads": 12, "num_hidden_layers": 12,
        "relative_attention_num_buckets": 32, "vocab_size": 30_527,
    });
    assert_eq!(nearest(&mpnet), Some("bert"));
    for (class, read_as) in [
        ("MPNetForMaskedLM", "BertForMaskedLM"),
        ("MPNetModel", "BertModel"),
        ("MPNetForSequenceClassification", "BertForSequenceClassification"),
    ] {
        let config = with(mpnet.clone(), "architectures", json!([class]));
        let (read, _) = Model::as_family(&config.to_string(), "bert").unwrap();
        assert_eq!(Model::from_json(&read, "model").unwrap().architecture, read_as);
    }
}

/// Decoders that are counted alone are offered to be read as a family that has about as many parameters.
#[test]
fn counted_decoders_are_read_as_others_of_their_size() {
    let cases: Vec<(u64, Value)> =
        serde_json::from_str(include_str!("cases/counted.json")).unwrap();
    let mut offered = Vec::new();
    for (_, config) in &cases {
        let text = config.to_string();
        let error = Model::from_json(&text, "model").unwrap_err();
        let Some((family, [planned, counted])) = Model::family_by_size(&text, &error) else {
            continue;
        };
        let (read, _) = Model::as_family(&text, family).unwrap();
        let graph = Model::from_json(&read, "model").unwrap().graph(GraphOptions::default());
        assert_eq!(graph.unwrap().parameter_counts().total, planned);
        assert!(planned.abs_diff(counted) <= counted / 20, "{config}");
        offered.push((config["model_type"].as_str().unwrap(), family));
    }
    for expected in [("axk2", "qwen3_moe"), ("dots3_note_text", "deepseek_v3")] {
        assert!(offered.contains(&expected), "{offered:?}");
    }
    assert!(!offered.iter().any(|(family, _)| ["bart", "bert", "wav2vec2"].contains(family)));
}

/// Sections that choose a variant are refused as such, with what the variant is.
#[test]
fn sections_of_variants_are_refused_with_what_they_mean() {
    let error = |config: Value| Model::from_json(&config.to_string(), "m").unwrap_err().to_string();
    let plain = without(llama(), "architectures");
    let sparse = with(plain.clone(), "sparse_config", json!({"block_size": 64}));
    let error_of_sparse = error(with(sparse, "model_type", json!("minicpm")));
    assert!(
        error_of_sparse.starts_with("`minicpm` with `sparse_config`, which is attention to blocks"),
        "{error_of_sparse}"
    );
    let visual = with(plain, "visual", json!({"heads": 16}));
    let error_of_visual = error(with(visual, "model_type", json!("qwen")));
    assert!(error_of_visual.contains("a tower that reads images"), "{error_of_visual}");
}

#[test]
fn models_that_ship_have_nothing_to_warn_of() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    let mut seen = 0;
    for entry in fs::read_dir(models).unwrap() {
        let path = entry.unwrap().path().join("config.json");
        let Ok(text) = fs::read_to_string(&path) else { continue };
        assert_eq!(warnings(&serde_json::from_str(&text).unwrap()), [""; 0], "{}", path.display());
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

/// Configurations as they are released, whole.
#[test]
fn fields_of_releases_that_do_not_matter_here_are_not_warned_of() {
    let qwen = json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151_643, "eos_token_id": 151_645,
        "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18_944,
        "max_position_embeddings": 32_768, "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
        "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1_000_000.0,
        "sliding_window": 131_072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 152_064,
        "use_mrope": false,
    });
    let mixtral = json!({
        "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14_336,
        "max_position_embeddings": 32_768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
        "rms_norm_eps": 1e-05, "rope_theta": 1_000_000.0, "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.0,
        "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32_000,
    });
    let gpt2 = json!({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50_256, "embd_pdrop": 0.1, "eos_token_id": 50_256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50_257,
        "reorder_and_upcast_attn": false, "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true,
    });
    let bert = json!({
        "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "classifier_dropout": null,
        "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
        "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
        "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
        "use_cache": true, "vocab_size": 30_522, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
    });
    let minimax = json!({
        "model_type": "minimax_m3_vl_text", "dense_intermediate_size": 12_288, "head_dim": 128, "hidden_size": 6144,
        "intermediate_size": 3072, "moe_layer_freq": [0, 1], "num_attention_heads": 64, "num_experts_per_tok": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 4, "num_local_experts": 128, "rotary_dim": 64,
        "shared_intermediate_size": 3072, "tie_word_embeddings": false, "vocab_size": 200_064,
        "sparse_attention_config": {
            "sparse_attention_freq": [0, 1], "sparse_block_size": 128, "sparse_index_dim": 128,
            "sparse_num_index_heads": 4, "sparse_topk_blocks": 16,
        },
    });
    let quiet = [
        llama(),
        with(llama(), "num_experts", json!(0)),
        with(llama(), "quantization_config", json!(null)),
        with(llama(), "torch_dtype", json!("torch.float8_e4m3fn")),
        with(llama(), "dtype", json!("bfloat16")),
        qwen,
        mixtral,
        gpt2,
        bert,
        minimax,
    ];
    for config in quiet {
        assert_eq!(warnings(&config), [""; 0], "{config}");
    }
}

#[test]
fn what_may_not_be_meant_is_said_by_name() {
    for (config, expected) in [
        (
            with(llama(), "num_hidden_layer", json!(40)),
            "field `num_hidden_layer` is not read; `num_hidden_layers` would be",
        ),
        (
            with(without(llama(), "num_key_value_heads"), "num_key_values_heads", json!(8)),
            "field `num_key_values_heads` is not read; `num_key_value_heads` would be",
        ),
        (
            with(without(llama(), "tie_word_embeddings"), "tie_word_embeding", json!(true)),
            "field `tie_word_embeding` is not read; `tie_word_embeddings` would be",
        ),
        (
            with(llama(), "num_local_experts", json!(8)),
            "field `num_local_experts` is not read of `llama`: the model is planned without it",
        ),
        (
            with(llama(), "quantization_config", json!({"quant_method": "fp8"})),
            "field `quantization_config` is not read of `llama`: the model is planned without it",
        ),
        (
            with(llama(), "sliding_window", json!(4096)),
            "field `sliding_window` is not read of `llama`: the model is planned without it",
        ),
        (
            with(llama(), "rope_scaling", json!({"rope_type": "lama3", "factor": 8.0})),
            "positions are scaled by `lama3`, which is not known: time and memory are the same, but it cannot be executed; \
             known are default, linear, dynamic, llama3, yarn and longrope",
        ),
        (
            with(llama(), "torch_dtype", json!("int3")),
            "`torch_dtype` is \"int3\", which is no type of numbers; known are float32, float16, bfloat16, float64 and \
             types of float8",
        ),
        (
            without(llama(), "vocab_size"),
            "field `vocab_size` is left out, so it is 32000, which the transformers library has for `llama`",
        ),
        (
            without(llama(), "num_attention_heads"),
            "field `num_attention_heads` is left out, so it is 32, which the transformers library has for `llama`",
        ),
    ] {
        assert_eq!(warnings(&config), [expected]);
    }
}

#[test]
fn a_field_that_is_there_twice_is_said() {
    let config = llama().to_string();
    let twice =
        format!("{},\"hidden_size\":2048,\"vocab_size\":64}}", config.trim_end_matches('}'));
    assert_eq!(
        warnings_of(&twice),
        [
            "field `hidden_size` is there more than once; the last one counts",
            "field `vocab_size` is there more than once; the last one counts",
        ]
    );
}

#[test]
fn a_field_that_is_missing_is_looked_for_among_those_that_are_there() {
    let config = with(without(llama(), "num_hidden_layers"), "num_hidden_layer", json!(32));
    let error = Model::from_json(&config.to_string(), "model").unwrap_err();
    assert_eq!(error.to_string(), "field `num_hidden_layers` is missing, which `llama` needs");
    let hint = error.hint().unwrap();
    assert_eq!(hint, "`num_hidden_layer` is there; `num_hidden_layers` is read");
}

#[test]
fn numbers_that_cannot_be_meant_are_refused() {
    for (field, value) in [
        ("rope_theta", json!(-1)),
        ("rope_theta", json!(0)),
        ("rope_theta", json!("big")),
        ("rms_norm_eps", json!(-1e-5)),
        ("vocab_size", json!(-1)),
        ("num_key_value_heads", json!(0)),
        ("num_key_value_heads", json!(5)),
        ("num_attention_heads", json!(31)),
        ("attention_dropout", json!(2.0)),
        ("head_dim", json!(0)),
        ("intermediate_size", json!(0)),
        ("max_position_embeddings", json!(0)),
    ] {
        let config = with(llama(), field, value.clone());
        let error = Model::from_json(&config.to_string(), "model");
        assert!(error.is_err(), "{field} {value} is accepted");
        let error = error.unwrap_err().to_string();
        assert!(error.contains(field), "{field} {value}: {error}");
    }
}
