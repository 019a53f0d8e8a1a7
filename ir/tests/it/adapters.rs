//! Low-rank adapters: what is trained, what is held, what is computed.

use ir::framework::{Feature, JobFacts};
use ir::graph::{
    AdapterError, Adapters, Graph, Kernel, Learning, Pass, ShardContext, Sharding, Sizes,
    WeightFormat,
};
use ir::model::{GraphOptions, Model};

fn adapters(rank: u64, targets: &[&str]) -> Adapters {
    let targets = targets.iter().map(ToString::to_string).collect();
    Adapters { rank, alpha: 2 * rank, targets, base_weights: WeightFormat::Plain }
}

fn graph(model: &str, adapters: Option<&Adapters>) -> Result<Graph, AdapterError> {
    let path = format!("{}/../models/{model}/config.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    Model::from_json(&text, model).unwrap().training_graph(GraphOptions::default(), adapters)
}

/// What peft prints for Llama 3.1 8B (`print_trainable_parameters`).
#[test]
fn trained_parameters_are_those_of_peft() {
    for (rank, targets, trained) in [
        (8, ["q_proj", "v_proj"].as_slice(), 3_407_872),
        (16, &["q_proj", "v_proj"], 6_815_744),
        (16, &["all-linear"], 41_943_040),
        (64, &["q_proj", "k_proj", "v_proj", "o_proj"], 54_525_952),
    ] {
        let counts = graph("llama-3.1-8b", Some(&adapters(rank, targets))).unwrap();
        let counts = counts.parameter_counts();
        assert_eq!(counts.trained, trained, "{rank} {targets:?}");
        assert_eq!(counts.total, 8_030_261_248 + trained);
    }
}

#[test]
fn a_layer_has_one_name_in_our_words_and_in_theirs() {
    let count = |target: &str| {
        let graph = graph("llama-3.1-8b", Some(&adapters(8, &[target]))).unwrap();
        graph.parameter_counts().trained
    };
    for (theirs, ours) in [
        ("q_proj", "attention.query"),
        ("o_proj", "output"),
        ("gate_proj", "mlp.gate"),
        ("down_proj", "down"),
        ("self_attn.q_proj", "attention.query"),
        ("mlp.up_proj", "mlp.up"),
        ("linear_proj", "attention.output"),
        ("linear_fc2", "mlp.down"),
        ("self_attention.linear_proj", "output"),
    ] {
        assert_eq!(count(theirs), count(ours), "{theirs}");
    }
    // Megatron's fused layers are several here.
    assert_eq!(count("linear_qkv"), ["query", "key", "value"].map(count).iter().sum::<u64>());
    assert_eq!(count("linear_fc1"), count("gate") + count("up"));
}

fn setting(sharding: Sharding) -> ShardContext {
    ShardContext::plain(Sizes { micro_batch_size: 1, sequence_length: 128 }, sharding)
}

/// Frozen weights have no gradient, and are neither counted nor held as trained ones are; and no layer keeps
/// its input for one.
#[test]
fn frozen_weights_cost_no_gradient() {
    let plain = graph("llama-3.1-8b", None).unwrap();
    let adapted = graph("llama-3.1-8b", Some(&adapters(16, &["q_proj"]))).unwrap();
    let flops = |graph: &Graph, pass: Pass| {
        let (_, layer) = graph.classes().nth(1).unwrap();
        let work = layer.work(&setting(Sharding::NONE));
        let products = work
            .kernels
            .into_iter()
            .filter(|kernel| kernel.pass == pass && matches!(kernel.kernel, Kernel::MatMul { .. }));
        // Whole numbers, far below 2^53.
        products.map(|kernel| kernel.flops.get()).sum::<f64>() as u64
    };
    let adapter = 2 * 128 * 16 * (4096 + 4096);
    let all = flops(&plain, Pass::Forward);
    assert_eq!(flops(&adapted, Pass::Forward), all + adapter);
    assert_eq!(flops(&adapted, Pass::InputGrad), all + adapter);
    assert_eq!(flops(&adapted, Pass::WeightGrad), adapter);
    let work = |graph: &Graph| {
        let (_, layer) = graph.classes().nth(1).unwrap();
        layer.work(&setting(Sharding::tensor(4)))
    };
    let (plain, adapted) = (work(&plain), work(&adapted));
    // A is whole on each rank, B cut along the heads.
    assert_eq!(adapted.parameters.dense, 16 * (4096 + 4096 / 4));
    assert_eq!(adapted.parameters.frozen.dense.get(), 2 * plain.parameters.dense);
    assert!(
        adapted.saved_bytes(ir::graph::BlockRecompute::None)
            < plain.saved_bytes(ir::graph::BlockRecompute::None)
    );
}

/// Dettmers et al. 2023 (arXiv 2305.14314), section 3: 0.5 bits a weight for scales of 32 bits and blocks
/// of 64. Bits here are halves.
#[test]
fn quantised_weights_take_their_bits_and_their_scales() {
    for (format, half_bits) in [
        (WeightFormat::Plain, 32),
        (WeightFormat::Int8, 17),
        (WeightFormat::Int4, 9),
        (WeightFormat::Nf4, 9),
    ] {
        let adapters = Adapters { base_weights: format, ..adapters(16, &["all-linear"]) };
        let graph = graph("llama-3.1-8b", Some(&adapters)).unwrap();
        let (_, layer) = graph.classes().nth(1).unwrap();
        let linear: u64 = layer
            .nodes()
            .filter(|node| matches!(node.op.learning, Learning::Frozen(it) if it == format))
            .filter(|node| node.op.parameters.iter().any(|p| p.dims.len() > 1))
            .flat_map(|node| &node.op.parameters)
            .map(ir::graph::Parameter::num_elements)
            .sum();
        let norms = 2 * 2 * 4096;
        for sharding in [Sharding::NONE, Sharding::tensor(8)] {
            let shards = u64::from(sharding.tensor_parallel);
            let held = layer.work(&setting(sharding)).parameters.frozen.dense.get();
            assert_eq!((held - norms) * 16 * shards, linear * half_bits);
        }
    }
}

#[test]
fn adapters_that_cannot_be_are_refused_with_what_could() {
    let message =
        |adapters: &Adapters| graph("llama-3.1-8b", Some(adapters)).unwrap_err().to_string();
    assert_eq!(
        message(&adapters(2048, &["k_proj"])),
        "rank 2048 is more than `attention.key` [4096, 1024] has\nhint: at most 1024; far less is usual, such as 16"
    );
    assert_eq!(
        message(&adapters(8, &["q_proj", "query_key_value"])),
        "no linear layer is called `query_key_value`\nhint: `attention.key`, `attention.output`, \
         `attention.query`, `attention.value`, `head`, `mlp.down`, `mlp.gate`, `mlp.up`, or `all-linear`"
    );
    assert_eq!(
        message(&adapters(8, &[])),
        "`targets` of the adapters is 0, but must be at least 1"
    );
    assert_eq!(
        message(&adapters(0, &["q_proj"])),
        "`rank` of the adapters is 0, but must be at least 1"
    );
}

/// What tensor-parallel ranks have alike and apply to different tokens or heads has summands of its gradient on
/// each: norms of heads always, norms and the router with sequence parallelism, and what of experts' adapters is
/// not cut, among those who share the expert.
#[test]
fn gradients_of_what_is_not_cut_are_summands() {
    let config = r#"{"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 1, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 4, "num_experts": 8, "vocab_size": 96,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": 32}"#;
    let model = Model::from_json(config, "test").unwrap();
    let trained = model.graph(GraphOptions::default()).unwrap();
    let adapted = trained.with_adapters(&adapters(4, &["gate_proj", "down_proj"])).unwrap();
    let partial = |graph: &Graph, sequence_parallel, expert_tensor_parallel| {
        let block = graph.classes().map(|(_, block)| block).find(|it| it.name() == "layer");
        let sharding = Sharding {
            tensor_parallel: 4,
            sequence_parallel,
            expert_parallel: 2,
            expert_tensor_parallel,
            ..Sharding::NONE
        };
        let parameters = block.unwrap().work(&setting(sharding)).parameters;
        [parameters.partial_gradients, parameters.expert_partial_gradients]
    };
    assert_eq!(partial(&trained, false, 4), [2 * 16, 0]);
    for shared_by in [1, 2, 4] {
        assert_eq!(partial(&trained, true, shared_by), [2 * 16 + 2 * 64 + 64 * 8, 0]);
        // A of the gate and B of what brings features down, of four experts each.
        let not_cut = if shared_by == 1 { 0 } else { 2 * 4 * (64 * 4) };
        assert_eq!(partial(&adapted, true, shared_by), [0, not_cut]);
    }
}

/// A router's correction is not trained either (DeepSeek-V3), and is no adapter.
#[test]
fn adapters_alone_are_a_feature_of_a_job() {
    let has_adapters = |graph: Graph| JobFacts::of(&graph).features.has(Feature::Adapters);
    for model in ["llama-3.1-8b", "deepseek-v3", "glm-4.5-air", "minimax-m2"] {
        assert!(!has_adapters(graph(model, None).unwrap()), "{model}");
    }
    assert!(has_adapters(graph("llama-3.1-8b", Some(&adapters(8, &["q_proj"]))).unwrap()));
    assert!(has_adapters(graph("deepseek-v3", Some(&adapters(8, &["all-linear"]))).unwrap()));
}

/// What transformers' classes decide is known with adapters and without, and of no other family.
#[test]
fn a_model_s_class_decides_features_of_a_job() {
    let features = |model, adapters| JobFacts::of(&graph(model, adapters).unwrap()).features;
    let some = adapters(8, &["all-linear"]);
    for adapters in [None, Some(&some)] {
        for (model, feature, expected) in [
            ("gpt2", Feature::UnplannedLayers, true),
            ("olmo-3-7b", Feature::UnplannedLayers, true),
            ("gpt-neox-20b", Feature::OwnAttention, true),
            ("gpt-neox-20b", Feature::NoTensorPlan, false),
            ("bloom-176b", Feature::NoTensorPlan, true),
            ("t5-3b", Feature::SharedWeights, true),
            ("deepseek-v3", Feature::LatentAttention, true),
            ("llama-3.1-8b", Feature::OwnAttention, false),
            ("llama-3.1-8b", Feature::LatentAttention, false),
        ] {
            assert_eq!(features(model, adapters).has(feature), expected, "{model} {feature:?}");
        }
    }
}
