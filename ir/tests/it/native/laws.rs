//! Whatever is read, nothing panics, and what is read can be counted.

use ir::graph::Sizes;
use ir::native;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ALEXNET, TOY, edge, features, file};

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = native::read(&text);
    }

    #[test]
    fn no_cut_of_a_file_panics(at in 0..TOY.trim_end().len()) {
        prop_assert!(native::read(&TOY[..at]).is_err());
    }

    /// Any value in the place of any other.
    #[test]
    fn no_mutation_panics(
        model in prop::sample::select(vec![TOY, ALEXNET]),
        path in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        value in any_json(),
    ) {
        let mut file: Value = serde_json::from_str(model).unwrap();
        substitute(&mut file, &path, value);
        survives(&file);
    }

    /// Kinds with their attributes at random, each wired to nodes before it at random. What cannot be
    /// added to the graph so far is left out, so that what can be grows.
    #[test]
    fn no_graph_panics(
        start in any_input(),
        candidates in prop::collection::vec((any_node(), any_sources()), 1..16),
    ) {
        let (mut nodes, mut edges) = (vec![start], Vec::new());
        for (mut node, sources) in candidates {
            let name = nodes.len().to_string();
            let sources = sources.into_iter().map(|source| source.index(nodes.len()).to_string());
            let added: Vec<Value> = sources.map(|source| edge(&source, &name)).collect();
            node["name"] = json!(name);
            let nodes_after = [nodes.as_slice(), &[node]].concat();
            let edges_after = [edges.as_slice(), &added].concat();
            let text = file(&json!(nodes_after), &json!(edges_after));
            if native::read(&text).is_ok() {
                survives(&serde_json::from_str(&text).unwrap());
                (nodes, edges) = (nodes_after, edges_after);
            }
        }
    }

    /// Edges from anywhere to anywhere.
    #[test]
    fn no_wiring_panics(
        num_nodes in 1usize..8,
        edges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..16),
    ) {
        let add = |number: usize| json!({"name": number.to_string(), "kind": "add"});
        let nodes: Vec<Value> =
            std::iter::once(features(4)).chain((0..num_nodes).map(add)).collect();
        let name = |at: prop::sample::Index| nodes[at.index(nodes.len())]["name"].as_str().unwrap();
        let edges: Vec<Value> = edges.into_iter().map(|(a, b)| edge(name(a), name(b))).collect();
        survives(&serde_json::from_str(&file(&json!(nodes), &json!(edges))).unwrap());
    }

    /// What is read can be counted, whatever its sizes.
    #[test]
    fn no_sizes_overflow(
        sizes in prop::collection::vec((0u32..42).prop_map(|bits| 1u64 << bits), 7),
    ) {
        let nodes = json!([
            {"name": "x", "kind": "input", "dims": ["batch", "channels", "height", "width"],
                "shape": ["b", sizes[0], sizes[1], sizes[2]]},
            {"name": "conv", "kind": "conv2d", "out_channels": sizes[3], "kernel": sizes[4],
                "stride": sizes[5], "padding": sizes[4] / 2},
            {"name": "flatten", "kind": "flatten"},
            {"name": "fc", "kind": "linear", "out_features": sizes[6]},
        ]);
        let edges = json!([edge("x", "conv"), edge("conv", "flatten"), edge("flatten", "fc")]);
        survives(&serde_json::from_str(&file(&nodes, &edges)).unwrap());
    }
}

/// Reads `file`; if that succeeds, counts and takes apart what was read.
fn survives(file: &Value) {
    let Ok((_, graph)) = native::read(&file.to_string()) else { return };
    assert!(graph.parameter_counts().total <= native::MAX_PARAMETERS);
    let total: u64 = graph.blocks().map(|class| graph.class(class).num_parameters()).sum();
    assert_eq!(graph.parameter_counts().total, total);
    let sizes = Sizes { micro_batch_size: 1, sequence_length: 1 };
    for (_, block) in graph.classes() {
        assert!(block.nodes().all(|node| node.op.output.num_elements(sizes) > 0));
    }
}

/// Puts `new` where `path` leads, each step taken modulo what there is.
fn substitute(value: &mut Value, path: &[prop::sample::Index], new: Value) {
    match (value, path.split_first()) {
        (Value::Array(items), Some((step, rest))) if !items.is_empty() => {
            let at = step.index(items.len());
            substitute(&mut items[at], rest, new);
        }
        (Value::Object(map), Some((step, rest))) if !map.is_empty() => {
            let at = step.index(map.len());
            substitute(map.values_mut().nth(at).unwrap(), rest, new);
        }
        (leaf, _) => *leaf = new,
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u64..16).prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from),
        prop::sample::select(vec!["b", "s", "x", "net1", "relu", "add", "flatten", "batch"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_input() -> impl Strategy<Value = Value> {
    let inputs = [
        json!({"dims": ["batch", "channels", "height", "width"], "shape": ["b", 4, 8, 8]}),
        json!({"dims": ["batch", "sequence"], "shape": ["b", "s"], "element": "index"}),
        json!({"dims": ["batch", "sequence", "hidden"], "shape": ["b", 8, 4]}),
        json!({"dims": ["batch", "sequence", "heads", "kv_heads", "head_dim"],
            "shape": ["b", "s", 4, 2, 8]}),
    ];
    prop::sample::select(inputs.to_vec()).prop_map(|mut input| {
        input["name"] = json!("0");
        input["kind"] = json!("input");
        input
    })
}

/// Mostly one source, since most operators take one.
fn any_sources() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    let source = any::<prop::sample::Index>();
    prop_oneof![
        3 => prop::collection::vec(source.clone(), 1),
        2 => prop::collection::vec(source.clone(), 2),
        1 => prop::collection::vec(source, 3),
    ]
}

fn any_node() -> impl Strategy<Value = Value> {
    let dim = prop::sample::select(vec![
        "batch", "sequence", "hidden", "heads", "kv_heads", "head_dim", "features", "channels",
        "height", "width", "top_k",
    ]);
    (
        dim.clone(),
        dim,
        prop::sample::select(vec![0u64, 1, 2, 2, 2, 3, 4, 4, 4, 8, 1 << 40]),
        0usize..41,
    )
        .prop_map(|(a, b, n, kind)| match kind {
            0 => json!({"kind": "linear", "out_features": n, "out_dims": [a]}),
            1 => json!({"kind": "linear", "out_features": [n, 2], "out_dims": [a, b]}),
            2 => json!({"kind": "linear", "out_features": n, "out_dims": [a], "over": [b]}),
            3 => {
                json!({"kind": "conv2d", "out_channels": n, "kernel": 3, "padding": n, "groups": 2})
            }
            4 => json!({"kind": "conv2d", "out_channels": 4, "kernel": n, "stride": n}),
            5 => json!({"kind": "max_pool2d", "kernel": n}),
            6 => json!({"kind": "average_pool2d", "kernel": 2, "padding": n}),
            7 => json!({"kind": "adaptive_average_pool2d", "output": n}),
            8 => json!({"kind": "flatten"}),
            9 => json!({"kind": "batch_norm"}),
            10 => json!({"kind": "layer_norm", "over": [a]}),
            11 => json!({"kind": "rms_norm", "over": [a, b]}),
            12 => json!({"kind": "softmax", "over": a}),
            13 => json!({"kind": "concat", "over": a}),
            14 => json!({"kind": "slice", "dim": a, "size": n}),
            15 => {
                json!({"kind": "embedding", "num_embeddings": n, "embedding_dim": n, "out_dim": a})
            }
            16 => json!({"kind": "attention"}),
            17 => json!({"kind": "attention_scores"}),
            18 => json!({"kind": "attention_values"}),
            19 => json!({"kind": "add_parameter", "over": [a]}),
            20 => json!({"kind": "prepend_parameter"}),
            21 => json!({"kind": "patches_to_sequence"}),
            22 => json!({"kind": "first_token"}),
            23 => json!({"kind": "router", "num_experts": n, "top_k": 2}),
            24 => json!({"kind": "dispatch", "top_k": n}),
            25 => json!({"kind": "cross_entropy"}),
            26 => json!({"kind": "add"}),
            27 => json!({"kind": "product", "over": [a]}),
            28 => json!({"kind": "reduce", "function": "max", "over": [a, b]}),
            29 => json!({"kind": "reshape", "dims": ["batch", a], "shape": ["b", n]}),
            30 => json!({"kind": "reshape", "dims": ["batch", a, b], "shape": ["b", n, 2]}),
            31 => json!({"kind": "pad", "dim": a, "size": n}),
            32 => json!({"kind": "take", "dim": a, "size": n}),
            33 => json!({"kind": "elementwise", "function": "exp"}),
            34 => json!({"kind": "elementwise", "function": "divide"}),
            35 => {
                json!({"kind": "conv_transpose2d", "out_channels": n, "kernel": 3, "padding": n, "stride": 2})
            }
            36 => json!({"kind": "conv_transpose2d", "out_channels": 4, "kernel": n, "dilation": n}),
            37 => json!({"kind": "upsample2d", "output": n}),
            38 => {
                json!({"kind": "embedding_bag", "num_embeddings": 4, "embedding_dim": n, "out_dim": a})
            }
            39 => json!({"kind": "group_norm", "groups": n}),
            _ => json!({"kind": "multiply"}),
        })
}
