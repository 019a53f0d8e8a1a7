//! Selective recompute as torchtitan has it: which operators run again, and what is kept.

use ir::graph::{Block, BlockRecompute, OpKind, SavedPart, ShardContext, Sharding, Sizes};
use ir::model::{GraphOptions, Model};

const TOKENS: u64 = 512;

const LLAMA: &str = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 640,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000}"#;

const MIXTRAL: &str = r#"{"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 640,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "num_local_experts": 8,
    "num_experts_per_tok": 2}"#;

fn layer(config: &str) -> Block {
    let graph = Model::from_json(config, "m").unwrap().graph(GraphOptions::default()).unwrap();
    let graph = graph.keeping_every_other_linear();
    graph.classes().map(|(_, block)| block).find(|block| block.name() == "layer").unwrap().clone()
}

fn setting(expert_parallel: u32) -> ShardContext {
    let sizes = Sizes { micro_batch_size: 1, sequence_length: TOKENS };
    let sharding = Sharding { expert_parallel, ..Sharding::NONE };
    ShardContext { fuses_projections: false, ..ShardContext::plain(sizes, sharding) }
}

/// Names of the products, of attention and of exchanges that do not run again.
fn kept(layer: &Block, expert_parallel: u32) -> Vec<&str> {
    let work = layer.work(&setting(expert_parallel));
    let is_heavy = |kind: &OpKind| {
        use OpKind as K;
        matches!(
            kind,
            K::Linear { .. }
                | K::GroupedLinear { .. }
                | K::Attention { .. }
                | K::Dispatch { .. }
                | K::Combine
        )
    };
    let nodes = layer.nodes().filter(|node| is_heavy(&node.op.kind));
    let kept = nodes.filter(|node| !work.is_recomputed(node.id, BlockRecompute::Selective));
    kept.map(|node| node.op.name.as_str()).collect()
}

/// torchtitan, `SelectiveAC` of `distributed/activation_checkpoint.py`: `aten.mm` is saved every second time, experts are
/// `_grouped_mm` and never are, exchanges of their tokens are where there is one.
#[test]
fn every_other_product_runs_again() {
    let dense = ["attention.query", "attention.value", "attention.core", "mlp.gate", "mlp.down"];
    assert_eq!(kept(&layer(LLAMA), 1), dense);
    let mixture = layer(MIXTRAL);
    assert_eq!(kept(&mixture, 1), dense[..3]);
    assert_eq!(kept(&mixture, 4), [&dense[..3], &["mlp.dispatch", "mlp.combine"]].concat());
}

/// The layer's input and what each kept operator puts out, in 16 bits.
#[test]
fn what_is_kept_is_what_the_kept_operators_put_out() {
    let mut work = layer(LLAMA).work(&setting(1));
    work.saved.retain(|it| it.part != SavedPart::Statistics);
    let [hidden, key_value, feed_forward] = [256, 64, 640];
    let outputs = hidden + key_value + hidden + feed_forward + hidden;
    assert_eq!(work.saved_bytes(BlockRecompute::Selective).get() / TOKENS, 2 * (hidden + outputs));
}
