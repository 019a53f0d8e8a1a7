//! Parameter counts of 50 published models, as the transformers library counts them.
//!
//! The counts lie outside the repository, in `shared/oracles/parameters`; without them these tests
//! say so and pass. `models.rs` keeps some of the facts within.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use ir::graph::{Activation, Block, Graph, OpKind, Parameter};
use ir::model::{Besides, GraphOptions, Model, ModelError};
use ir::text::json;
use serde_json::Value;

#[test]
fn counts_equal_those_of_transformers() {
    let Some(models) = oracle() else { return };
    let mut wrong = String::new();
    for (facts, model) in &models {
        let graph = model.graph(GraphOptions::default()).unwrap();
        let counts = graph.parameter_counts();
        let mut check = |what: &str, ours: u64, theirs: Option<u64>| {
            if let Some(theirs) = theirs.filter(|theirs| *theirs != ours) {
                writeln!(wrong, "{}: {what} {ours}, but transformers has {theirs}", model.name)
                    .unwrap();
            }
        };
        let fact = |name: &str| facts[name].as_u64();
        check("parameters", counts.total, fact("num_parameters"));
        check(
            "token embedding",
            of(&graph, |_, op| op == "embedding.tokens"),
            fact("token_embedding_parameters"),
        );
        check("head", of(&graph, |_, op| op == "head"), fact("lm_head_parameters"));
        check("routed", counts.routed, fact("routed_expert_parameters"));
        check("active", counts.active, fact("active_parameters"));
        check(
            "routers",
            of(&graph, |kind, _| matches!(kind, OpKind::Router { .. })),
            fact("router_parameters"),
        );
        check(
            "shared",
            of(&graph, |_, op| op.starts_with("mlp.shared")),
            fact("shared_expert_parameters"),
        );
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn layers_equal_those_of_transformers() {
    let Some(models) = oracle() else { return };
    let mut wrong = String::new();
    for (facts, model) in &models {
        let graph = model.graph(GraphOptions::default()).unwrap();
        for (stack, name) in [("decoder", "layer"), ("encoder", "encoder")] {
            let theirs: Vec<_> = facts["layer_breakdown"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|row| row["stack"].as_str().unwrap_or("decoder") == stack)
                .flat_map(|row| {
                    let layers = row["layers"].as_u64().unwrap() as usize;
                    let sizes = (row["parameters"].as_u64().unwrap(), parts(&row["breakdown"]));
                    std::iter::repeat_n(sizes, layers)
                })
                .collect();
            let ours: Vec<_> = graph
                .blocks()
                .map(|class| graph.class(class))
                .filter(|block| block.name() == name)
                .map(|block| (block.num_parameters(), our_parts(block)))
                .collect();
            if ours != theirs {
                let (ours, theirs) = (ours.first(), theirs.first());
                writeln!(
                    wrong,
                    "{} {stack}: {ours:?}, but transformers has {theirs:?}",
                    model.name
                )
                .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn counts_of_2026_equal_those_of_transformers() {
    let Some((folder, facts)) = facts("parameters_2026") else { return };
    let mut wrong = String::new();
    for facts in facts {
        let name = facts["name"].as_str().unwrap();
        let text = fs::read_to_string(folder.join(name).join("config.json")).unwrap();
        let ours = match Model::from_json(&json::without_infinities(&text), name) {
            Ok(model) => {
                let graph = model.graph(GraphOptions::default()).unwrap();
                graph.parameter_counts().total + sum(&model.besides)
            }
            Err(ModelError::CountedAlone { parts, .. }) => sum(&parts),
            Err(error) => {
                writeln!(wrong, "{name}: {error}").unwrap();
                continue;
            }
        };
        if Some(ours) != facts["num_parameters"].as_u64() {
            writeln!(wrong, "{name}: {ours}, but transformers has {}", facts["num_parameters"])
                .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn sum(parts: &[Besides]) -> u64 {
    parts.iter().map(|part| part.num_parameters).sum()
}

/// Parameters of attention, norms and the rest of a layer, from transformers' names of modules.
fn parts(breakdown: &Value) -> [u64; 3] {
    let mut parts = [0; 3];
    for (name, size) in breakdown.as_object().unwrap() {
        let last = name.rsplit('.').next().unwrap();
        let is_norm = last.contains("norm") || last.starts_with("ln_");
        let is_attention = last.contains("attn") || last.to_lowercase().contains("attention");
        let part = if is_norm {
            1
        } else if is_attention {
            0
        } else {
            2
        };
        parts[part] += size.as_u64().unwrap();
    }
    // BERT's attention and output have their norms inside.
    if breakdown.get("intermediate").is_some() && breakdown.get("layernorm_before").is_none() {
        return [0, 0, parts.iter().sum()];
    }
    parts
}

fn our_parts(block: &Block) -> [u64; 3] {
    let mut parts = [0; 3];
    for node in block.nodes() {
        let name = node.op.name.as_str();
        let is_norm =
            matches!(name.rsplit('.').next(), Some("norm" | "post_norm" | "parallel_norm"));
        let is_attention = name.starts_with("attention.") || name.starts_with("cross_attention.");
        let part = if is_norm {
            1
        } else if is_attention {
            0
        } else {
            2
        };
        parts[part] += node.op.own_parameters().map(Parameter::num_elements).sum::<u64>();
    }
    let is_bert = block.nodes().last().is_some_and(|node| node.op.name == "mlp.norm")
        && block.nodes().any(|node| {
            matches!(node.op.kind, OpKind::Activation(Activation::Gelu | Activation::GeluTanh))
        });
    if is_bert { [0, 0, parts.iter().sum()] } else { parts }
}

/// Untied parameters of the operators that `pick` picks by kind and name.
fn of(graph: &Graph, pick: impl Fn(&OpKind, &str) -> bool) -> u64 {
    let blocks = graph.blocks().map(|class| graph.class(class));
    blocks
        .flat_map(Block::nodes)
        .filter(|node| pick(&node.op.kind, &node.op.name))
        .flat_map(|node| &node.op.parameters)
        .filter(|parameter| parameter.tied_to.is_none())
        .map(Parameter::num_elements)
        .sum()
}

/// A folder of the oracles, and the facts of its models.
#[expect(clippy::print_stderr, reason = "a test that skips says why")]
fn facts(oracle: &str) -> Option<(PathBuf, Vec<Value>)> {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/oracles").join(oracle);
    let Ok(text) = fs::read_to_string(folder.join("oracle.json")) else {
        eprintln!("skipped: `{}` has no `oracle.json`", folder.display());
        return None;
    };
    Some((folder, serde_json::from_str(&text).unwrap()))
}

/// The facts of each model, with the model that we read.
fn oracle() -> Option<Vec<(Value, Model)>> {
    let (folder, facts) = facts("parameters")?;
    let read = |facts: Value| {
        let name = facts["name"].as_str().unwrap();
        let text = fs::read_to_string(folder.join(name).join("config.json")).unwrap();
        let model = Model::from_json(&text, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        (facts, model)
    };
    Some(facts.into_iter().map(read).collect())
}
