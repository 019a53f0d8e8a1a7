//! Parts that newer families have in addition to attention and feed-forward blocks: operations against PyTorch's counts
//! and counts by hand, what blocks hand on, and weights that layers share.

use ir::graph::{
    AttentionMask, AttentionShape, Block, Graph, OpKind, ShardContext, Sharding, Sizes,
};
use ir::model::{GraphOptions, Model};

const TOKENS: u64 = 64;

fn graph(config: &str) -> Graph {
    Model::from_json(config, "m").unwrap().graph(GraphOptions::default()).unwrap()
}

fn blocks(graph: &Graph) -> impl Iterator<Item = &Block> {
    graph.classes().map(|(_, block)| block)
}

fn forward_flops(config: &str) -> f64 {
    graph(config).forward_flops(TOKENS).full.get() / TOKENS as f64
}

/// Gemma 4 whose last two layers use keys and values of the fourth, without windows.
const GEMMA4: &str = r#"{"model_type": "gemma4_text", "hidden_size": 256, "num_hidden_layers": 6, "intermediate_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "global_head_dim": 64, "vocab_size": 1000,
    "vocab_size_per_layer_input": 500, "hidden_size_per_layer_input": 16, "num_kv_shared_layers": 2,
    "use_double_wide_mlp": true, "attention_k_eq_v": true, "num_global_key_value_heads": 1, "layer_types": ["full_attention",
    "full_attention", "full_attention", "full_attention", "full_attention", "full_attention"]}"#;

const LONGCAT: &str = r#"{"model_type": "longcat_flash", "hidden_size": 256, "num_layers": 3, "ffn_hidden_size": 512,
    "num_attention_heads": 4, "vocab_size": 1000, "q_lora_rank": 64, "kv_lora_rank": 32, "n_routed_experts": 16,
    "moe_topk": 4, "expert_ffn_hidden_size": 64, "zero_expert_num": 0}"#;

const WHISPER: &str = r#"{"model_type": "whisper", "d_model": 64, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 192, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
    "vocab_size": 1000, "num_mel_bins": 80, "max_source_positions": 96, "max_target_positions": 64}"#;

/// Counts of `torch.utils.flop_counter` (PyTorch 2.15) of what transformers 5.24.0 builds, for 64 tokens: every pair of
/// queries and keys, and for Whisper 96 positions of sound.
#[test]
fn operations_are_those_that_pytorch_counts() {
    for (config, counted) in
        [(GEMMA4, 9_048_064.0), (LONGCAT, 10_465_280.0), (WHISPER, 1_018_880.0)]
    {
        let ours = forward_flops(config);
        assert!((ours - counted).abs() < 1e-3, "{config}: {ours}, but PyTorch counts {counted}");
    }
}

/// Of experts with and without weights a token goes to the former as often as they are among all: to 8 of 12 where a
/// third is without, as many as are active of LongCat-Flash on average.
#[test]
fn experts_without_weights_take_their_share_of_tokens() {
    let config = LONGCAT.replace(r#""zero_expert_num": 0"#, r#""zero_expert_num": 8"#);
    let config = config.replace(r#""moe_topk": 4"#, r#""moe_topk": 12"#);
    let of_experts = |config: &str| {
        let graph = graph(config);
        let dispatches =
            blocks(&graph).flat_map(Block::nodes).filter_map(|node| match node.op.kind {
                OpKind::Dispatch { top_k } => Some(top_k),
                _ => None,
            });
        dispatches.collect::<Vec<_>>()
    };
    assert_eq!(of_experts(&config), [8]);
    assert_eq!(of_experts(LONGCAT), [4]);
}

/// The embedding goes to all layers of Gemma 4; keys and values from the last layer that has its own.
#[test]
fn blocks_hand_on_what_later_layers_use() {
    let graph = graph(GEMMA4);
    let outputs: Vec<_> = graph.blocks().map(|it| graph.class(it).outputs().len()).collect();
    assert_eq!(outputs, [2, 2, 2, 2, 4, 4, 4, 1]);
    let keys = |block: &Block| block.nodes().any(|node| node.op.name == "attention.key");
    let has_keys: Vec<_> = graph.blocks().map(|it| keys(graph.class(it))).collect();
    assert_eq!(has_keys, [false, true, true, true, true, false, false, false]);
    // Keys and values stay with their heads: between blocks each tensor-parallel rank has its own.
    let sizes = Sizes { micro_batch_size: 1, sequence_length: TOKENS };
    let output = |sharding| {
        let work =
            graph.class(graph.blocks().nth(5).unwrap()).work(&ShardContext::plain(sizes, sharding));
        work.output.get() / 2 / TOKENS
    };
    assert_eq!(output(Sharding::NONE), 2 * 256 + 2 * 64);
    let config =
        GEMMA4.replace(r#""num_global_key_value_heads": 1"#, r#""num_global_key_value_heads": 2"#);
    let graph = self::graph(&config);
    let fifth = graph.class(graph.blocks().nth(5).unwrap());
    let work = fifth.work(&ShardContext::plain(sizes, Sharding::tensor(2)));
    assert_eq!(work.output.get() / 2 / TOKENS, 2 * 256 + 2 * 64);
}

/// DeepSeek-V4: a layer with a window alone, one with chosen blocks of 4 positions, and one with blocks of 16; operations
/// by hand.
#[test]
fn compressed_keys_and_streams_are_computed() {
    let (h, heads, dim, rank, groups, streams, window) = (256, 8, 32, 64, 4, 2, 8);
    let config = format!(
        r#"{{"model_type": "deepseek_v4", "hidden_size": {h}, "num_hidden_layers": 3, "vocab_size": 1000,
        "num_attention_heads": {heads}, "head_dim": {dim}, "q_lora_rank": {rank}, "o_groups": {groups}, "o_lora_rank": 16,
        "moe_intermediate_size": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "index_n_heads": 2,
        "index_head_dim": 16, "index_topk": 4, "sliding_window": {window}, "hc_mult": {streams},
        "compress_rate_csa": 4, "compress_rate_hca": 16, "compress_ratios": [0, 4, 16, 0],
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]}}"#
    );
    let of_streams = streams * h * (2 * streams + streams * streams) + 2 * streams * h;
    let of_half = of_streams + streams * streams * h;
    let projections = h * rank + rank * heads * dim + h * dim + heads * dim * 16 + groups * 16 * h;
    let experts = h * 4 + 3 * 3 * h * 64;
    // Values and gates of blocks; those of the indexer, its queries, weights and half of all scores.
    let chosen = 4 * h * dim + 4 * h * 16 + rank * 2 * 16 + h * 2 + 8 * 2 * 16;
    let far = 2 * h * dim;
    let head = streams * h * streams + streams * h + h * 1000;
    let products = 3 * (2 * of_half + projections + experts) + chosen + far + head;
    // Four blocks of 4 positions, or all of 16, of which those that are not yet over are not seen.
    let near = TOKENS * window - window * (window - 1) / 2;
    let pairs = 3 * near + (TOKENS * 4 - 4 * 16 / 2) + (TOKENS * 4 - 16 * 16 / 2);
    let expected = 2.0 * (products as f64 + (pairs * heads * 2 * dim) as f64 / TOKENS as f64);
    let found = forward_flops(&config);
    assert!((found - expected).abs() < 1e-3, "{found}, not {expected}");
}

/// The module of DeepSeek-V4-Flash by hand, after `MTPBlock` of its authors' code: a layer with a window alone, two
/// projections, three norms, and weights of its own for the sum of the streams.
#[test]
fn modules_read_and_write_streams() {
    let config = r#"{"model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 3, "vocab_size": 1000,
        "num_attention_heads": 64, "head_dim": 512, "num_nextn_predict_layers": 1}"#;
    let total = |multi_token_prediction| {
        let options = GraphOptions { multi_token_prediction, ..GraphOptions::default() };
        Model::from_json(config, "m").unwrap().graph(options).unwrap().parameter_counts().total
    };
    let module = 6_576_416_374 + 2 * 4096 * 4096 + 3 * 4096 + 4 * 4 * 4096 + 4 + 1;
    assert_eq!(total(true) - total(false), module);
}

/// A chunk's positions see those before them in the chunk alone: at most half of what a window of its size shows.
#[test]
fn chunks_are_no_windows() {
    let share = |mask| AttentionShape {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        queries: 4096,
        context: 4096,
        head_dim: 1,
        value_head_dim: 1,
        mask,
        document: 4096,
    };
    let share = |mask| share(mask).visible_fraction() * 4096.0;
    let chunked = |length| share(AttentionMask::Chunked { length });
    for (length, keys) in [(512, 256.5), (1024, 512.5), (4096, share(AttentionMask::Causal))] {
        assert!((chunked(length) - keys).abs() < 1e-9);
    }
    // A chunk of 3,000 and one of 1,096.
    assert!((chunked(3000) - (3000.0 * 3001.0 + 1096.0 * 1097.0) / 8192.0).abs() < 1e-9);
    assert!(share(AttentionMask::SlidingWindow { window: 512 }) > 1.8 * chunked(512));
}

/// Zamba 2: the three layers with a shared block have the weights of two; operations by hand.
#[test]
fn shared_blocks_are_counted_once_and_computed_each_time() {
    let config = |types: &str| {
        format!(
            r#"{{"model_type": "zamba2", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
            "vocab_size": 1000, "intermediate_size": 384, "adapter_rank": 16, "num_mem_blocks": 2, "mamba_d_state": 32,
            "layers_block_type": [{types}]}}"#
        )
    };
    let [plain, hybrid] =
        [r#""mamba", "mamba", "mamba""#, r#""hybrid", "hybrid", "hybrid""#].map(config);
    let (h, wide, inner, rank) = (256, 512, 384, 16);
    let shared = 3 * wide * wide + wide * h + 3 * h * inner;
    let own = rank * (h + 2 * inner) + h * h;
    let attention = 2 * TOKENS * wide;
    let more = forward_flops(&hybrid) - forward_flops(&plain);
    assert!((more - (3 * 2 * (shared + own + attention)) as f64).abs() < 1e-3, "{more}");
    let parameters = |config: &str| graph(config).parameter_counts().total;
    let norms = wide + h;
    assert_eq!(parameters(&hybrid) - parameters(&plain), 2 * (shared + norms) + 3 * own);
}

/// Whatever a family has, its blocks are sharded in each way; so are those of other heads.
#[test]
fn newer_families_are_sharded() {
    let cases = [include_str!("cases/recent.json"), include_str!("cases/heads.json")];
    let cases = cases.map(serde_json::from_str::<Vec<(u64, serde_json::Value)>>);
    let cases = cases.into_iter().flat_map(Result::unwrap);
    // An image's patches are no sequence that ranks divide.
    let cases = cases.filter(|(_, config)| config["model_type"] != "vit");
    // Longer than the chunks of recurrences.
    let sizes = Sizes { micro_batch_size: 2, sequence_length: 1024 };
    let ways = [
        Sharding::tensor(2),
        Sharding { sequence_parallel: true, ..Sharding::tensor(2) },
        Sharding { context_parallel: 2, ..Sharding::NONE },
        Sharding { expert_parallel: 4, ..Sharding::NONE },
    ];
    for (_, config) in cases {
        let graph = graph(&config.to_string());
        let total = |sharding: Sharding| -> f64 {
            let works =
                blocks(&graph).map(|block| block.work(&ShardContext::plain(sizes, sharding)));
            works.flat_map(|work| work.kernels).map(|kernel| kernel.flops.get()).sum()
        };
        let whole = total(Sharding::NONE);
        for sharding in ways {
            let ranks = sharding.tensor_parallel.max(sharding.context_parallel);
            let on_each = total(sharding);
            let least = whole / f64::from(ranks.max(sharding.expert_parallel));
            assert!(on_each > 0.99 * least && on_each <= 1.01 * whole, "{config}: {sharding:?}");
        }
    }
}
