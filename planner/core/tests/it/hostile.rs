//! Readers of plans and clusters take anything: they refuse it or accept it whole.

use std::sync::OnceLock;

use cost_models::clusters::{names, preset};
use ir::cluster::Cluster;
use ir::model::{GraphOptions, Model};
use ir::plan::{Plan, Training};
use planner_core::plan;
use planner_core::problem::{Choices, Problem};
use planner_core::search::{Go, Request, search};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use crate::checks::planned;
use crate::random::drawn;

/// Plans of a dense model and of a mixture, in a pipeline and not.
fn plans() -> &'static [Value] {
    static PLANS: OnceLock<Vec<Value>> = OnceLock::new();
    PLANS.get_or_init(|| {
        let dense = json!({
            "architecture": "gpt", "num_hidden_layers": 4, "hidden_size": 512,
            "num_attention_heads": 8, "vocab_size": 1000,
        });
        let mut mixture = dense.clone();
        mixture["num_experts"] = json!(4);
        mixture["num_experts_per_tok"] = json!(2);
        let of = |model: &Value, pipeline: u32| {
            let mut fixed = Request { top: 3, ..Request::default() };
            fixed.fixed.pipeline_parallel = pipeline.into();
            serde_json::to_value(make(model, &fixed)).expect("a plan is JSON")
        };
        [&dense, &mixture].iter().flat_map(|model| [of(model, 1), of(model, 2)]).collect()
    })
}

fn ideal() -> ir::framework::Framework {
    cost_models::frameworks::preset("ideal").unwrap()
}

fn make(description: &Value, request: &Request) -> Plan {
    let model = Model::from_json(&description.to_string(), "model").unwrap();
    let graph = model.training_graph(GraphOptions::default(), None).unwrap();
    let cluster = preset("a100").unwrap();
    let training = Training {
        sequence_length: 1024,
        global_batch_size: 16,
        precision: ir::cluster::Precision::Bf16,
        ..Choices::default().resolve(&model, graph.has_sequence(), &cluster, 4)
    };
    let problem = Problem::new(graph, training, &cluster, ideal(), 4).unwrap();
    let outcome = search(&problem, request, &mut |_| Go::On);
    planned(&problem, &cluster, ("model", description), &outcome.plans)
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u64..20).prop_map(Value::from),
        (0u32..64).prop_map(|bit| Value::from(1u64 << bit)),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-330i32..308).prop_map(|exponent| Value::from(10f64.powi(exponent))),
        Just(Value::from(u32::MAX)),
        "[a-z0-9_]{0,12}".prop_map(Value::from),
        select(vec!["gpipe", "1f1b", "interleaved-1f1b", "full", "fp8", "llama", "tpu"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |value| {
        prop_oneof![
            prop::collection::vec(value.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{0,8}", value, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// One edit of a JSON tree.
#[derive(Clone, Debug)]
enum Edit {
    Drop,
    Replace(Value),
    Add(String, Value),
    Scale(f64),
    Twice,
}

fn edits() -> impl Strategy<Value = Vec<(Index, Edit)>> {
    let edit = prop_oneof![
        1 => Just(Edit::Drop),
        3 => any_value().prop_map(Edit::Replace),
        1 => ("[a-z_]{1,8}", any_value()).prop_map(|(key, value)| Edit::Add(key, value)),
        2 => select(vec![-1.0, 0.0, 0.5, 2.0, 3.0, 1e6, 1e12, 1e300]).prop_map(Edit::Scale),
        1 => Just(Edit::Twice),
    ];
    prop::collection::vec((any::<Index>(), edit), 1..4)
}

/// Where everything in `value` lies, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                places(
                    value,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn mutate(mut root: Value, edits: Vec<(Index, Edit)>) -> Value {
    for (index, edit) in edits {
        let mut all = Vec::new();
        places(&root, "", &mut all);
        let place = index.get(&all).clone();
        if let (Edit::Drop, Some((parent, key))) = (&edit, place.rsplit_once('/')) {
            match root.pointer_mut(parent) {
                Some(Value::Object(map)) => _ = map.remove(key),
                Some(Value::Array(list)) => _ = list.remove(key.parse::<usize>().unwrap_or(0)),
                _ => {}
            }
            continue;
        }
        let Some(value) = root.pointer_mut(&place) else { continue };
        match edit {
            Edit::Drop => {}
            Edit::Replace(new) => *value = new,
            Edit::Add(key, new) => {
                if let Value::Object(map) = value {
                    map.insert(key, new);
                }
            }
            Edit::Scale(factor) => {
                if let Some(count) = value.as_u64() {
                    *value = json!((count as f64 * factor).max(0.0) as u64);
                } else if let Some(number) = value.as_f64() {
                    *value = json!(number * factor);
                }
            }
            Edit::Twice => {
                if let Value::Array(list) = value {
                    let again = list.clone();
                    list.extend(again);
                }
            }
        }
    }
    root
}

fn check_plan(text: &str) -> Result<(), TestCaseError> {
    let Ok(checked) = plan::read(text) else { return Ok(()) };
    let written = serde_json::to_string(&checked.plan).expect("a plan is JSON");
    let again = plan::read(&written);
    prop_assert!(again.is_ok(), "{:?}", again.err());
    prop_assert_eq!(again.unwrap().plan, checked.plan);
    Ok(())
}

fn check_cluster(text: &str) -> Result<(), TestCaseError> {
    let Ok(cluster) = Cluster::from_json(text) else { return Ok(()) };
    let written = serde_json::to_string(&cluster).expect("a cluster is JSON");
    prop_assert_eq!(Cluster::from_json(&written), Ok(cluster));
    Ok(())
}

#[test]
fn what_is_written_is_read() {
    for plan in plans() {
        let checked = plan::read(&plan.to_string()).unwrap();
        assert_eq!(&serde_json::to_value(&checked.plan).unwrap(), plan);
        assert_eq!(*checked.found.layout, checked.plan.layout);
        let again = checked.found.evaluation;
        assert_eq!(again.breakdown, checked.plan.prediction.breakdown);
        assert_eq!(again.memory, checked.plan.prediction.memory);
    }
}

proptest! {
    #![proptest_config(drawn(1000))]

    #[test]
    fn a_mutated_plan_is_refused_or_read(plan in select(plans()), edits in edits()) {
        check_plan(&mutate(plan, edits).to_string())?;
    }

    #[test]
    fn a_plan_cut_anywhere_is_refused(plan in select(plans()), cut in any::<Index>()) {
        let text = plan.to_string();
        prop_assert!(plan::read(&text[..cut.index(text.len())]).is_err());
    }

    #[test]
    fn any_json_is_no_plan(value in any_value(), text in ".*") {
        prop_assert!(plan::read(&value.to_string()).is_err());
        check_plan(&text)?;
    }

    #[test]
    fn a_mutated_cluster_is_refused_or_read(
        name in select(names().collect::<Vec<_>>()), edits in edits(),
    ) {
        let cluster = serde_json::to_value(preset(name).unwrap()).unwrap();
        check_cluster(&mutate(cluster, edits).to_string())?;
    }

    #[test]
    fn any_json_is_no_cluster(value in any_value(), text in ".*") {
        check_cluster(&value.to_string())?;
        check_cluster(&text)?;
    }
}

proptest! {
    #![proptest_config(drawn(100))]

    /// On any cluster that is accepted a model is planned, or said not to fit, in finite numbers.
    #[test]
    fn an_accepted_cluster_is_planned_for(
        name in select(names().collect::<Vec<_>>()), edits in edits(), num_gpus in 1u32..9,
    ) {
        let cluster = serde_json::to_value(preset(name).unwrap()).unwrap();
        let Ok(cluster) = Cluster::from_json(&mutate(cluster, edits).to_string()) else { return Ok(()) };
        let model = Model::from_json(&plans()[2]["model"]["description"].to_string(), "model").unwrap();
        let graph = model.training_graph(GraphOptions::default(), None).unwrap();
        let training = Choices { global_batch_size: Some(8), ..Choices::default() }
            .resolve(&model, graph.has_sequence(), &cluster, num_gpus);
        let Ok(problem) = Problem::new(graph, training, &cluster, ideal(), num_gpus) else { return Ok(()) };
        let outcome = search(&problem, &Request::default(), &mut |_| Go::On);
        let has_reason = !outcome.plans.is_empty() || outcome.closest.is_some();
        prop_assert!(has_reason || outcome.counts.candidates == 0);
        for found in outcome.plans.iter().chain(&outcome.closest) {
            let step_time = found.evaluation.step_time.get();
            prop_assert!(step_time.is_finite() && step_time > 0.0, "{step_time}");
        }
    }
}
