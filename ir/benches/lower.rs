//! How long it takes from the text of a model to its graph, and from a block to its work.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ir::graph::{Block, Graph, ShardContext, Sharding, Sizes};
use ir::model::{GraphOptions, Model};

const LLAMA_405B: &str = include_str!("../../models/llama-3.1-405b/config.json");

/// 16,384 H100s trained Llama 3.1 405B with these degrees (Llama Team 2024, arXiv 2407.21783, table
/// 4).
const SETTING: ShardContext = ShardContext::plain(
    Sizes { micro_batch_size: 1, sequence_length: 8192 },
    Sharding { sequence_parallel: true, ..Sharding::tensor(8) },
);

fn lowered(text: &str) -> Graph {
    let model = Model::from_json(text, "llama-3.1-405b").expect("the model ships");
    model.graph(GraphOptions::default()).expect("a model that was read has a graph")
}

fn layer(graph: &Graph) -> &Block {
    let layer = graph.classes().find(|(_, block)| block.name() == "layer");
    layer.expect("a Llama has layers").1
}

fn benches(criterion: &mut Criterion) {
    criterion.bench_function("lower/llama-3.1-405b", |bencher| {
        bencher.iter(|| lowered(black_box(LLAMA_405B)));
    });
    let graph = lowered(LLAMA_405B);
    criterion.bench_function("work/llama-layer", |bencher| {
        bencher.iter(|| layer(&graph).work(black_box(&SETTING)));
    });
}

criterion_group!(lower, benches);
criterion_main!(lower);
