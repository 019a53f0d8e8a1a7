//! Fate of each kind of text that users give, from its reader on: whatever the text, it ends soon, and without a panic.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::LazyLock;

use ir::cluster::Cluster;
use ir::framework::Framework;
use ir::model::{GraphOptions, Model};
use ir::schedule::{read_csv, write_csv};
use planner::report::{Costs, ScheduleReport};
use planner_evidence::measured::{kineto, nccl_tests};
use planner_evidence::validation::{Quantity, compare, compare_kernels, read_rows, validate};
use planner_tools::interchange::{self, Import, Stated};

/// A `config.json` or a short form.
pub fn config(text: &str) {
    let Ok(model) = Model::from_json(text, "model") else { return };
    let options = [true, false].map(|all| GraphOptions {
        multi_token_prediction: all,
        dropout: all,
        ..GraphOptions::default()
    });
    for options in options {
        let graph = model.graph(options).expect("a model that was read has a graph");
        black_box(graph.forward_flops(1024));
    }
    let _ = Model::numerics(text);
}

/// A native graph.
pub fn graph(text: &str) {
    config(text);
}

/// A cluster file. One that is accepted is written and read again as it is.
pub fn cluster(text: &str) {
    let Ok(cluster) = Cluster::from_json(text) else { return };
    let _ = cost_models::clusters::check_rates(&cluster);
    let again = serde_json::to_string(&cluster).expect("a cluster is JSON");
    assert_eq!(Cluster::from_json(&again).as_ref(), Ok(&cluster));
}

/// A framework file.
pub fn framework(text: &str) {
    let Ok(framework) = Framework::from_json(text) else { return };
    let again = serde_json::to_string(&framework).expect("a framework is JSON");
    assert_eq!(Framework::from_json(&again).as_ref(), Ok(&framework));
}

/// A plan. One that is accepted is written and read again as it is.
pub fn plan(text: &str) {
    let Ok(checked) = planner_core::plan::read(text) else { return };
    let again = serde_json::to_string(&checked.plan).expect("a plan is JSON");
    let again = planner_core::plan::read(&again).expect("a plan that was read is read again");
    assert_eq!(again.plan, checked.plan);
}

/// A timeline, and its pictures.
pub fn timeline(text: &str) {
    let Ok(timeline) = traces::chrome::read(text) else { return };
    let _ = traces::gantt::draw(&[&timeline], &traces::gantt::GanttOptions::default())
        .and_then(|drawing| drawing.svg());
    let _ = black_box(traces::html::page(&[&timeline], &traces::html::PageOptions::default()));
    let again = traces::chrome::read(&traces::chrome::write(&timeline));
    assert_eq!(again.expect("a timeline that was written is read"), timeline);
}

/// A pipeline-order CSV, checked and timed.
pub fn schedule(text: &str) {
    let Ok(schedule) = read_csv(text) else { return };
    let costs = Costs { forward: 3, input_grad: 2, weight_grad: 1, send: 1 };
    let report = ScheduleReport::new("order.csv".to_owned(), &schedule, costs);
    black_box(report.text(&schedule, Some(80)));
    let again = read_csv(&write_csv(&schedule)).expect("a schedule that was written is read");
    assert_eq!(again.ranks().len(), schedule.ranks().len());
}

/// Measured steps, each predicted: a JSON list or a table.
pub fn runs(text: &str) {
    for name in ["runs.json", "runs.csv"] {
        let Ok(rows) = read_rows(name, text) else { continue };
        let validated = validate(name, &rows, None);
        black_box(compare(name, Quantity::StepTimeSeconds, &validated));
    }
}

/// Tables of kernels.
pub fn kernels(text: &str) {
    for name in ["gemm_h100.csv", "attention_h100.csv", "nccl_h100.csv"] {
        let _ = black_box(compare_kernels(name, text));
    }
}

/// A trace of PyTorch's profiler.
pub fn profile(text: &str) {
    let _ = black_box(kineto::read(text));
}

/// Output of nccl-tests.
pub fn network(text: &str) {
    let _ = black_box(nccl_tests::read("all_reduce_perf.txt", text));
}

const MODEL: &str = r#"{"architecture": "llama", "num_hidden_layers": 4, "hidden_size": 1024,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}"#;

static SMALL: LazyLock<(Model, Cluster)> = LazyLock::new(|| {
    let model = Model::from_json(MODEL, "small").expect("it is a model");
    (model, cost_models::clusters::preset("h100").expect("it ships"))
});

/// A launch script, the arguments in it, a tool's own file, or a manifest of a job.
pub fn settings(text: &str) {
    let Ok(job) = interchange::job(text, &[]) else { return };
    let (set, text) = match &job {
        Some(job) => (job.variables.clone(), job.text.as_str()),
        None => (BTreeMap::new(), text),
    };
    let (model, cluster) = &*SMALL;
    let files = BTreeMap::from([("config.json".to_owned(), text.to_owned())]);
    let _ = interchange::LaunchScript::read(text, &set, &files).map(|it| it.named_files());
    let stated = Stated { num_gpus: Some(8), ..Stated::default() };
    let import = Import {
        text,
        from: None,
        files: &files,
        stated,
        set: &set,
        model,
        model_text: MODEL,
        cluster,
        command: String::new(),
    };
    let _ = black_box(interchange::import(&import));
}
