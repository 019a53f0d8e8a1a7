//! Graphs that were made from PyTorch modules (`cases/torch/write.py`) count what PyTorch counts of the modules, and
//! each of their operators can be split.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ir::graph::{BlockRecompute, Graph, OpKind, ShardContext, Sharding, Sizes};
use ir::native;
use serde::Deserialize;

/// Counts of PyTorch for a module and one sample.
#[derive(Deserialize)]
struct Counts {
    parameters: u64,
    forward_flops: f64,
    /// Of autograd's saved tensors, in fp32.
    saved_bytes: Option<f64>,
}

fn cases() -> Vec<(String, Counts, Graph)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/cases/torch"));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let counts: BTreeMap<String, Counts> = serde_json::from_str(&read("counts.json")).unwrap();
    let graph = |name: &str| native::read(&read(&format!("{name}.json"))).unwrap().1;
    counts.into_iter().map(|(name, counts)| (name.clone(), counts, graph(&name))).collect()
}

#[test]
fn parameters_and_operations_are_those_of_the_module() {
    for (name, counts, graph) in cases() {
        assert_eq!(graph.parameter_counts().total, counts.parameters, "{name}");
        let flops = graph.forward_flops(32).full.get();
        assert!((flops / counts.forward_flops - 1.0).abs() < 1e-9, "{name}: {flops}");
    }
}

/// But for statistics of batch norms, and means and indices of poolings, that is all.
#[test]
fn images_save_what_autograd_saves() {
    let sizes = Sizes { micro_batch_size: 1, sequence_length: 1 };
    let setting = ShardContext { compute_bytes: 4, ..ShardContext::plain(sizes, Sharding::NONE) };
    let mut compared = 0;
    for (name, counts, graph) in cases() {
        let Some(expected) = counts.saved_bytes else { continue };
        let of_block = |block| graph.class(block).work(&setting).saved_bytes(BlockRecompute::None);
        let saved: u64 = graph.blocks().map(|block| of_block(block).get()).sum();
        assert!((saved as f64 / expected - 1.0).abs() < 0.02, "{name}: {saved} of {expected}");
        compared += 1;
    }
    assert!(compared >= 2);
}

#[test]
fn every_operator_can_be_shared_by_its_batch() {
    let sizes = Sizes { micro_batch_size: 8, sequence_length: 32 };
    for (name, _, graph) in cases() {
        for block in graph.blocks().map(|block| graph.class(block)) {
            for node in block.nodes().filter(|node| !matches!(node.op.kind, OpKind::Input)) {
                let splits = block.split_op(node.id, sizes, [4, 1]);
                let has_batch = !matches!(node.op.kind, OpKind::Parameter { .. })
                    && node.op.output.dim(ir::graph::DimName::Batch).is_some();
                let expected = 1 + usize::from(has_batch);
                assert!(splits.len() >= expected, "{name}: {} has {}", node.op.name, splits.len());
            }
        }
    }
}
