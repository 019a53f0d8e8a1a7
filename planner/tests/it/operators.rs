//! `search --per-operator`: graphs whose operators are split one by one.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::cli::planner;

fn found(args: &[&str]) -> Value {
    let run = planner(&[&["search"], args, &["--per-operator", "--format", "json"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

/// The splits of the best plan, by operator.
fn splits(found: &Value) -> BTreeMap<String, BTreeMap<String, u64>> {
    let operators = found["plans"][0]["operators"].as_array().unwrap();
    let split = |it: &Value| {
        let splits = it["splits"].as_object().unwrap();
        let splits = splits.iter().map(|(dim, ranks)| (dim.clone(), ranks.as_u64().unwrap()));
        (it["name"].as_str().unwrap().to_owned(), splits.collect())
    };
    operators.iter().map(split).collect()
}

#[test]
fn every_node_of_the_file_has_a_split_that_divides_the_gpus() {
    for model in ["alexnet", "vgg-19", "resnet-50", "toy-mlp", "lone-linear"] {
        let path = format!("models/{model}.json");
        let file: Value =
            serde_json::from_str(&fs::read_to_string(format!("../{path}")).unwrap()).unwrap();
        let found = found(&[&path, "--gpus", "12", "--global-batch-size", "96"]);
        let nodes = file["nodes"].as_array().unwrap().iter();
        let nodes =
            nodes.filter(|node| node["kind"] != "input").map(|node| node["name"].as_str().unwrap());
        let operators = found["plans"][0]["operators"].as_array().unwrap();
        let named: Vec<&str> = operators.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(named, nodes.collect::<Vec<_>>(), "{model}");
        for plan in found["plans"].as_array().unwrap() {
            assert!(plan["communication_seconds"].as_f64().unwrap() >= 0.0);
            let layout = &plan["layout"];
            let degree = |name: &str| layout[name].as_u64().unwrap();
            assert_eq!(
                degree("tensor_parallel") * degree("pipeline_parallel") * degree("data_parallel"),
                12
            );
        }
        for (name, splits) in splits(&found) {
            assert!(12 % splits.values().product::<u64>() == 0, "{name} {splits:?}");
        }
        let gap = found["search"]["gap"].as_f64().unwrap();
        assert!((0.0..1.0).contains(&gap), "{gap}");
    }
}

/// On one GPU nothing is split, and a step takes what a search says of it, the host between steps included.
#[test]
fn a_step_that_is_not_split_takes_what_a_search_says() {
    for model in ["models/alexnet.json", "models/toy-mlp.json", "models/vgg-19.json"] {
        let args = [model, "--gpus", "1", "--global-batch-size", "64", "--framework", "ideal"];
        let whole = planner(&[&["search"], &args[..], &["--format", "json"]].concat());
        let whole: Value = serde_json::from_str(&whole.stdout).unwrap();
        let seconds = |found: &Value| found["plans"][0]["step_time_seconds"].as_f64().unwrap();
        let ratio = seconds(&found(&args)) / seconds(&whole);
        assert!((ratio - 1.0).abs() < 0.03, "{model}: {ratio}");
    }
}

/// Tables that no GPU holds are split by rows or columns, and what is computed from them shares the batch.
#[test]
fn large_tables_of_a_recommender_are_split() {
    let text = fs::read_to_string("../ir/tests/it/cases/torch/recommender.json").unwrap();
    let text = text.replace("\"num_embeddings\": 100000,", "\"num_embeddings\": 1000000000,");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recommender.json");
    fs::write(&path, text).unwrap();
    let found = found(&[path.to_str().unwrap(), "--gpus", "8", "--global-batch-size", "4096"]);
    let splits = splits(&found);
    let of_table = &splits["tables.0"];
    let is_of_table = |dim: &str| matches!(dim, "in_features" | "out_features");
    assert!(of_table.keys().any(|dim| is_of_table(dim)), "{of_table:?}");
    assert_eq!(splits["top.0"], BTreeMap::from([("batch".to_owned(), 8)]));
    assert_eq!(found["plans"][0]["fits"], true);
}

#[test]
fn a_u_net_from_pytorch_has_splits_of_all_its_operators() {
    let found =
        found(&["ir/tests/it/cases/torch/unet.json", "--gpus", "4", "--global-batch-size", "1024"]);
    for (name, splits) in splits(&found) {
        assert_eq!(splits.keys().collect::<Vec<_>>(), ["batch"], "{name}");
    }
}

/// Krizhevsky 2014, *One weird trick for parallelizing convolutional neural networks* (arXiv 1404.5997): convolutions
/// share the batch, dense layers with many parameters their features.
#[test]
fn convolutions_share_the_batch_and_large_dense_layers_their_features() {
    for (model, cluster) in
        [("alexnet", "v100"), ("alexnet", "a100-pcie"), ("vgg-19", "v100"), ("vgg-19", "h100")]
    {
        let path = format!("models/{model}.json");
        let splits = splits(&found(&[&path, "--gpus", "8", "--cluster", cluster]));
        let convolutions = splits.iter().filter(|(name, _)| name.starts_with("features."));
        for (name, splits) in convolutions {
            assert_eq!(*splits, BTreeMap::from([("batch".to_owned(), 8)]), "{model} {name}");
        }
        let first = if model == "alexnet" { "classifier.1" } else { "classifier.0" };
        let dims: Vec<&str> = splits[first].keys().map(String::as_str).collect();
        let is_of_features = |dim: &&str| ["in_features", "out_features"].contains(dim);
        assert!(!dims.is_empty() && dims.iter().all(is_of_features), "{model} {dims:?}");
    }
}

/// All GPUs sharing one operator is one more way: with it nothing gets slower.
#[test]
fn no_plan_is_slower_than_one_layout_for_all_blocks() {
    for model in ["models/alexnet.json", "models/vgg-19.json", "models/resnet-50.json"] {
        for args in [
            ["--gpus", "8", "--global-batch-size", "64"],
            ["--gpus", "4", "--global-batch-size", "512"],
        ] {
            let args = [&[model], &args[..], &["--framework", "ideal"]].concat();
            let run = planner(&[&["search"], &args[..], &["--format", "json"]].concat());
            let whole: Value = serde_json::from_str(&run.stdout).unwrap();
            let time = |found: &Value| found["plans"][0]["step_time_seconds"].as_f64().unwrap();
            let times = whole["plans"].as_array().unwrap().iter();
            let least = times
                .map(|plan| plan["step_time_seconds"].as_f64().unwrap())
                .fold(f64::INFINITY, f64::min);
            assert!(time(&found(&args)) <= least * 1.0001, "{args:?}");
        }
    }
}

/// Where every operator shares the batch, kernels take what they take in data parallelism.
#[test]
fn operators_that_share_the_batch_compute_as_in_data_parallelism() {
    let args =
        ["models/resnet-50.json", "--gpus", "8", "--cluster", "l4", "--global-batch-size", "1024"];
    let found = found(&args);
    let plans = found["plans"].as_array().unwrap().iter();
    let by_batch = |plan: &&Value| {
        let operators = plan["operators"].as_array().unwrap();
        let is_batch = |it: &Value| it["splits"] == serde_json::json!({"batch": 8});
        plan["layout"]["data_parallel"] == 1 && operators.iter().all(is_batch)
    };
    let ours = plans.clone().find(by_batch).unwrap();
    let run = planner(
        &[
            &["evaluate"],
            &args[..],
            &["--layout", "dp8", "--framework", "ideal", "--format", "json"],
        ]
        .concat(),
    );
    let theirs: Value = serde_json::from_str(&run.stdout).unwrap();
    let compute = |plan: &Value| plan["breakdown"]["compute_seconds"].as_f64().unwrap();
    let [ours, theirs] = [compute(ours), compute(&theirs["plans"][0])];
    assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} {theirs}");
}

#[test]
fn what_it_cannot_do_is_said() {
    for (args, said) in [
        (&["--framework", "megatron-core"][..], "not known to split operators one by one"),
        (&["--cluster", "a100:1,h100:1"], "GPUs of one kind"),
        (&["--tp", "2"], "cannot be used with"),
        (&["--front"], "cannot be used with"),
        (&["-o", "plan.json"], "cannot be used with"),
        (&["--threads", "1"], "has no effect"),
    ] {
        let run = planner(
            &[&["search", "models/alexnet.json", "--gpus", "16", "--per-operator"], args].concat(),
        );
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(said), "{run:?}");
    }
}

#[test]
fn a_stopped_search_has_what_it_found_and_no_gap() {
    let found = found(&["models/vgg-19.json", "--gpus", "8", "--time-limit", "1ms"]);
    assert_eq!(found["search"]["gap"], Value::Null);
    assert_eq!(found["search"]["stop_reason"], "time_limit");
    assert!(!found["plans"].as_array().unwrap().is_empty());
}

#[test]
fn nothing_fits_in_too_little_memory() {
    let args =
        ["search", "models/vgg-19.json", "--gpus", "2", "--headroom", "79", "--per-operator"];
    let run = planner(&args);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("nothing fits: the closest needs"), "{run:?}");
}
