//! Layers without attention, against counts by hand: products, what training saves, what tensor parallelism exchanges.

use ir::collective::Collective;
use ir::graph::{
    Axis, Block, BlockRecompute, Graph, Pass, Saved, SavedPart, ShardContext, Sharding, Sizes,
};
use ir::layout::{Layout, LayoutSpec, Limits};
use ir::model::{GraphOptions, Model};

const TOKENS: u64 = 512;

fn graph(config: &str) -> Graph {
    Model::from_json(config, "m").unwrap().graph(GraphOptions::default()).unwrap()
}

fn first_layer(graph: &Graph) -> &Block {
    graph.classes().map(|(_, block)| block).find(|block| block.name() == "layer").unwrap()
}

fn setting(sharding: Sharding) -> ShardContext {
    let sizes = Sizes { micro_batch_size: 1, sequence_length: TOKENS };
    ShardContext { fuses_projections: false, ..ShardContext::plain(sizes, sharding) }
}

/// FLOPs of a token in the forward pass of the first layer.
fn flops(graph: &Graph) -> f64 {
    let work = first_layer(graph).work(&setting(Sharding::NONE));
    let forward = work.kernels.iter().filter(|it| it.pass == Pass::Forward);
    forward.map(|it| it.flops.get()).sum::<f64>() / TOKENS as f64
}

/// Bytes of a token that the first layer saves in 16 bits, statistics of norms aside.
fn saved(graph: &Graph) -> u64 {
    let mut work = first_layer(graph).work(&setting(Sharding::NONE));
    work.saved.retain(|it| it.part != SavedPart::Statistics);
    work.saved_bytes(BlockRecompute::None).get() / TOKENS
}

const MAMBA: &str = r#"{"model_type": "mamba2", "num_hidden_layers": 2, "hidden_size": 256, "num_heads": 8, "head_dim": 64,
    "n_groups": 4, "state_size": 32, "chunk_size": 128, "vocab_size": 1000}"#;

/// h, d, G, N, H, k, Q of [`MAMBA`], and channels of its convolution.
const SIZES: [u64; 7] = [256, 512, 4, 32, 8, 4, 128];

/// Dao and Gu 2024, arXiv 2405.21060, section 6: products with weights and within and between chunks; saved are the
/// norm's and the projection's inputs, what that puts out, and the outputs of scan, gate and norm.
#[test]
fn mamba_has_the_products_and_tensors_of_its_paper() {
    let [h, d, g, n, heads, k, q] = SIZES;
    let channels = d + 2 * g * n;
    let weights = 2 * h * (2 * d + 2 * g * n + heads) + 2 * d * h + 2 * k * channels;
    let recurrence = 2 * q * g * n + 2 * q * d + 4 * n * d;
    let graph = graph(MAMBA);
    assert!((flops(&graph) - (weights + recurrence) as f64).abs() < 1e-6);
    let kept = 2 * h + 2 * d + 2 * g * n + heads + 3 * d;
    assert_eq!(saved(&graph), 2 * kept);
    // One kernel up to the projection computes gate and norm again, whatever else runs function by function.
    let of = |is_eager| {
        let fused = ShardContext { scans_to_projection: true, is_eager, ..setting(Sharding::NONE) };
        first_layer(&graph).work(&fused).saved
    };
    let inner = |it: &Saved| first_layer(&graph).op(it.op).name.starts_with("mamba.gated");
    for is_eager in [false, true] {
        assert!(
            of(is_eager).iter().filter(|it| inner(it)).all(|it| it.part == SavedPart::Statistics)
        );
    }
}

/// Gu and Dao 2023, arXiv 2312.00752: products with weights alone; each tensor-parallel rank has some features, so that
/// what their states take is summed over ranks too. Saved are the norm's and the projection's inputs, what that puts
/// out, time steps with what they are made of, what is made of the convolved, and the outputs of scan and gate.
#[test]
fn mamba_1_has_the_products_of_its_paper() {
    let graph = graph(
        r#"{"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 256, "state_size": 8, "time_step_rank": 32,
        "vocab_size": 1000}"#,
    );
    let [h, d, n, rank, kernel] = [256, 512, 8, 32, 4];
    let weights = 3 * h * d + d * (rank + 2 * n) + rank * d;
    assert!((flops(&graph) - (2 * (weights + kernel * d)) as f64).abs() < 1e-6);
    let layer = first_layer(&graph);
    let parameters = |sharding| layer.work(&setting(sharding)).parameters.dense;
    // Convolution, time steps' bias, states, skips, and the norm.
    let of_features = weights + (kernel + 1) * d + d + n * d + d;
    assert_eq!(parameters(Sharding::NONE), of_features + h);
    assert_eq!(parameters(Sharding::tensor(4)), of_features / 4 + h);
    let work = layer.work(&setting(Sharding::tensor(4)));
    let sums = work.exchanges.iter().filter(|it| it.pass == Pass::Forward);
    let bytes: Vec<u64> = sums.map(|it| it.bytes.get() / TOKENS / 2).collect();
    assert_eq!(bytes, [rank + 2 * n, h]);
    let context = Sharding { context_parallel: 2, ..Sharding::NONE };
    assert!(layer.work(&setting(context)).exchanges.iter().all(|it| it.axis == Axis::Context));
}

/// DeepSeek-V3.2: an indexer scores half of all pairs, and attention has a quarter as many keys as there are positions:
/// so many pairs as a window of that length has.
#[test]
fn chosen_keys_are_attended_to() {
    let sizes = r#""num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
        "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
        "first_k_dense_replace": 1, "n_routed_experts": 8, "n_group": 1, "topk_group": 1, "vocab_size": 1000"#;
    let keys = TOKENS / 4;
    let plain = graph(&format!(r#"{{"model_type": "deepseek_v3", {sizes}}}"#));
    let chosen = graph(&format!(
        r#"{{"model_type": "deepseek_v32", "index_n_heads": 8, "index_head_dim": 16, "index_topk": {keys}, {sizes}}}"#
    ));
    let weights = f64::from(64 * 8 * 16 + 256 * 16 + 256 * 8);
    let scores = (TOKENS * 8 * 16) as f64;
    let pairs = |keys: f64, all: f64| all * keys - keys * (keys - 1.0) / 2.0;
    let [all, some] = [TOKENS, keys].map(|it| it as f64);
    let attention = |pairs: f64| 2.0 * 4.0 * (48.0 + 32.0) * pairs / all;
    let more = attention(pairs(some, all)) - attention(pairs(all, all));
    let difference = flops(&chosen) - flops(&plain);
    assert!((difference / (2.0 * weights + scores + more) - 1.0).abs() < 1e-9, "{difference}");
    let parameters = |graph: &Graph| graph.parameter_counts().total;
    assert_eq!(parameters(&chosen) - parameters(&plain), 64 * 8 * 16 + 256 * 16 + 256 * 8 + 2 * 16);
}

/// Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464: four gates, chunks of 64.
#[test]
fn delta_nets_have_the_products_and_tensors_of_their_paper() {
    let graph = graph(
        r#"{"model_type": "qwen3_next", "num_hidden_layers": 4, "hidden_size": 256, "num_experts": 0,
        "intermediate_size": 512, "linear_num_key_heads": 4, "linear_key_head_dim": 32, "linear_num_value_heads": 8,
        "linear_value_head_dim": 64, "vocab_size": 1000}"#,
    );
    let (h, k_dim, v_dim, v_heads, kernel, chunk) = (256, 32, 64, 8, 4, 64);
    let (keys, values) = (4 * k_dim, v_heads * v_dim);
    let mlp = 3 * 2 * h * 512;
    let weights = 2 * h * (2 * keys + 2 * values + 2 * v_heads)
        + 2 * values * h
        + 2 * kernel * (2 * keys + values);
    let rule = v_heads * (6 * k_dim * v_dim + chunk * (6 * k_dim + 4 * v_dim));
    assert!((flops(&graph) - (weights + rule + mlp) as f64).abs() < 1e-6);
    // Inputs of norm and projections; projections; convolutions; normalised keys and queries of each value head, values
    // and triangles; outputs of rule, norm and gate; decays in fp32. Then the feed-forward block's.
    let kept = 2 * h + 2 * keys + 2 * values + 2 * v_heads + 2 * keys + values;
    let in_rule = 2 * v_heads * k_dim + values + chunk * v_heads + 3 * values;
    assert_eq!(saved(&graph), 2 * (kept + in_rule) + 4 * v_heads + 2 * (2 * h + 3 * 512));
}

/// MiniMax 2025, arXiv 2501.08313, section 2.2: five projections, chunks of 128, one norm of all heads, of which each
/// tensor-parallel rank has some.
#[test]
fn lightning_attention_has_the_products_of_its_paper() {
    let graph = graph(
        r#"{"model_type": "minimax", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_experts": 4,
        "num_experts_per_tok": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "block_size": 128,
        "attn_type_list": [0, 1], "vocab_size": 1000}"#,
    );
    let [h, heads, d, chunk, width, top_k] = [256, 8, 64, 128, 512, 2];
    let inner = heads * d;
    let experts = 2 * h * 4 + top_k * 3 * 2 * h * width;
    let weights = 2 * h * 5 * inner;
    let recurrence = heads * (4 * chunk * d + 4 * d * d);
    assert!((flops(&graph) - (weights + recurrence + experts) as f64).abs() < 1e-6);
    let layer = first_layer(&graph);
    let parameters = |sharding| layer.work(&setting(sharding)).parameters.dense;
    let of_heads = 5 * h * inner + inner;
    assert_eq!(parameters(Sharding::NONE) - parameters(Sharding::tensor(4)), of_heads * 3 / 4);
    let sums = layer.work(&setting(Sharding::tensor(4)));
    let forward = sums.exchanges.iter().filter(|it| it.pass == Pass::Forward);
    // The outputs of mixer and experts, and the norm's sum of squares.
    let bytes: Vec<u64> = forward.map(|it| it.bytes.get() / TOKENS).collect();
    assert_eq!(bytes, [2 * h, 2 * h, 4]);
}

/// Falcon-H1: attention and Mamba-2 on one norm, whose partial sums are reduced once.
#[test]
fn mixers_side_by_side_add_up() {
    let sizes = r#""num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1000"#;
    let both = graph(&format!(
        r#"{{"model_type": "falcon_h1", "mamba_d_ssm": 512, "mamba_n_heads": 8, "mamba_n_groups": 4, "mamba_d_state": 32,
        "mamba_chunk_size": 128, {sizes}}}"#
    ));
    let attention = graph(&format!(r#"{{"model_type": "llama", {sizes}}}"#));
    let mamba = graph(MAMBA);
    let apart = flops(&attention) + flops(&mamba);
    assert!((flops(&both) - apart).abs() < 1e-6, "{} {apart}", flops(&both));
    let work = first_layer(&both).work(&setting(Sharding::tensor(2)));
    let sums = work.exchanges.iter().filter(|it| it.pass == Pass::Forward);
    assert!(sums.map(|it| it.bytes.get() / TOKENS).eq([2 * 256; 2]));
}

/// LFM2: three projections, a convolution of three positions.
#[test]
fn short_convolutions_have_their_products() {
    let graph = graph(
        r#"{"model_type": "lfm2", "num_hidden_layers": 2, "hidden_size": 256, "full_attn_idxs": [1], "num_attention_heads": 4,
        "num_key_value_heads": 4, "block_ff_dim": 512, "block_auto_adjust_ff_dim": false, "vocab_size": 1000}"#,
    );
    let h = 256;
    assert!((flops(&graph) - f64::from(8 * h * h + 2 * 3 * h + 3 * 2 * h * 512)).abs() < 1e-6);
}

/// As attention: an all-reduce each way, in addition to the norm's statistics, and all-to-alls before and after with
/// context parallelism.
#[test]
fn recurrences_are_sharded_as_attention_is() {
    let graph = graph(MAMBA);
    let layer = first_layer(&graph);
    let exchanges = |sharding: Sharding| {
        let work = layer.work(&setting(sharding));
        let key = |it: &ir::graph::Exchange| (it.pass, it.axis, it.collective);
        let is_tensor = |it: &&ir::graph::Exchange| it.bytes.get() > 4 * TOKENS;
        let mut all: Vec<_> = work.exchanges.iter().filter(is_tensor).map(key).collect();
        all.sort();
        all
    };
    let tensor = [
        (Pass::Forward, Axis::Tensor, Collective::AllReduce),
        (Pass::InputGrad, Axis::Tensor, Collective::AllReduce),
    ];
    assert_eq!(exchanges(Sharding::tensor(4)), tensor);
    let context = Sharding { context_parallel: 2, ..Sharding::NONE };
    let heads = [Pass::Forward, Pass::Forward, Pass::InputGrad, Pass::InputGrad];
    assert_eq!(exchanges(context), heads.map(|pass| (pass, Axis::Context, Collective::AllToAll)));
    let flops = |sharding: Sharding| -> f64 {
        layer.work(&setting(sharding)).kernels.iter().map(|it| it.flops.get()).sum()
    };
    let share = flops(Sharding::tensor(4)) * 4.0 / flops(Sharding::NONE);
    assert!((share - 1.0).abs() < 1e-12, "{share}");
}

/// Groups of heads share the state's inputs, so each is on one rank.
#[test]
fn groups_are_not_divided() {
    let limits = |groups: u64| {
        let config = MAMBA.replace(r#""n_groups": 4"#, &format!(r#""n_groups": {groups}"#));
        Limits::new(&graph(&config), 2, 1, TOKENS)
    };
    let spec = LayoutSpec { tensor_parallel: 2, expert_tensor_parallel: 2, ..LayoutSpec::ONE_RANK };
    assert!(Layout::new(spec, &limits(4)).is_ok());
    let error = Layout::new(spec, &limits(1)).unwrap_err().to_string();
    assert!(error.contains("groups of heads"), "{error}");
}

/// Context-parallel ranks exchange heads of states, of which each has a whole number.
#[test]
fn heads_of_states_divide_over_both_axes() {
    let limits = Limits::new(&graph(MAMBA), 64, 1, 1 << 20);
    let heads = limits.state_heads[0] as u32;
    let with = |context_parallel| {
        let spec = LayoutSpec {
            context_parallel,
            data_parallel: 64 / context_parallel,
            ..LayoutSpec::ONE_RANK
        };
        limits.sequence_divides(&spec)
    };
    assert!(heads.is_power_of_two() && heads < 64 && with(heads).is_ok());
    let error = with(2 * heads).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{heads} state heads do not divide")), "{error}");
}
