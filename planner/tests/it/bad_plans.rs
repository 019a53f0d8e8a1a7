//! Plans that cannot be: of another version, edited, cut short.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::bad_input::{Workplace, check_error};
use crate::cli::planner;

/// A plan of a pipeline, as JSON.
fn plan(place: &Workplace) -> Value {
    let path = place.path("good.json");
    let model = place.path("model.json");
    let args = ["search", &model, "--gpus", "8", "--pp", "2", "--top", "3", "-o", &path, "--quiet"];
    let run = planner(&args);
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}

#[test]
fn plans_that_were_edited() {
    let place = Workplace::new();
    let good = plan(&place);
    let reads = format!("reads {}", ir::plan::PLAN_VERSION);
    let edits: &[(&str, Value, &[&str])] = &[
        ("/version", json!(2), &["version 2", &reads, "hint:", "planner search"]),
        ("/version", json!("1"), &["version", "line"]),
        ("/version", json!(null), &["version", "line"]),
        ("/num_gpus", json!(16), &["layout"]),
        ("/num_gpus", json!(0), &["GPUs"]),
        ("/layout/pipeline_parallel", json!(4), &["layout", "GPUs"]),
        ("/layout/pipeline_parallel", json!(0), &["pipeline_parallel", "at least 1"]),
        ("/layout/tensor_parallel", json!(4_294_967_295_u32), &["layout", "GPUs"]),
        ("/layout/virtual_stages", json!(2), &["schedule"]),
        ("/layout/micro_batch_size", json!(999), &["batch"]),
        ("/layout/zero_shard", json!(0), &["zero_shard"]),
        ("/layout/zero_stage", json!(4), &["zero_stage", "line"]),
        ("/layout/schedule", json!("wavefront"), &["wavefront", "1f1b"]),
        ("/stages/0/num_blocks", json!(1), &["contradicts itself", "stages[1]"]),
        ("/stages/0/num_blocks", json!(0), &["contradicts itself", "stages[0]"]),
        ("/stages/1/num_blocks", json!(99), &["contradicts itself", "blocks"]),
        ("/stages/1/num_blocks", json!(4_294_967_295_u32), &["contradicts itself", "blocks"]),
        ("/stages/1/pipeline_rank", json!(0), &["contradicts itself", "stages[1]", "rank"]),
        ("/stages/1/first_block", json!(1), &["contradicts itself", "stages[1]"]),
        ("/stages", json!([]), &["contradicts itself", "stages"]),
        ("/model/num_parameters", json!(7), &["contradicts itself", "7 parameters"]),
        ("/model/description/hidden_size", json!(2048), &["contradicts itself", "parameters"]),
        ("/model/description/num_hidden_layers", json!(-1), &["model", "num_hidden_layers"]),
        ("/prediction/step_time_seconds", json!(0.001), &["contradicts", "step_time_seconds"]),
        ("/prediction/step_time_seconds", json!(-1.0), &["contradicts", "step_time_seconds"]),
        ("/prediction/step_time_seconds", json!(1e308), &["contradicts", "step_time_seconds"]),
        ("/prediction/breakdown/compute_seconds", json!(9.0), &["contradicts", "step_time"]),
        ("/prediction/peak_memory_bytes", json!(5), &["contradicts", "peak_memory_bytes"]),
        ("/prediction/memory/gradients_bytes", json!(5), &["contradicts", "peak_memory_bytes"]),
        ("/prediction/memory/gradients_bytes", json!(-5), &["line", "column"]),
        ("/prediction/tokens_per_second_per_gpu", json!(1e9), &["contradicts", "tokens_per"]),
        ("/prediction/mfu", json!(0.99), &["contradicts", "mfu"]),
        ("/training/global_batch_size", json!(7), &["layout", "global batch size 7"]),
        ("/training/global_batch_size", json!(0), &["global batch size", "between 1 and"]),
        ("/training/sequence_length", json!(0), &["sequence length", "between 1 and"]),
        ("/training/precision", json!("int4"), &["int4", "`bf16`"]),
        ("/cluster/gpu/memory_bytes", json!(0), &["memory_bytes"]),
        ("/cluster/gpu/kernel_rates", json!("h1000"), &["cluster", "`h1000`", "h100, h200"]),
        ("/cluster/levels/0/bandwidth_bytes_per_second", json!(0), &["cluster", "bandwidth"]),
        ("/cluster/gpu/memory_bytes", json!(1e9), &["contradicts itself", "cluster"]),
        ("/runners_up/0/step_time_seconds", json!(-5.0), &["contradicts", "runners_up[0]"]),
        ("/runners_up/0/layout/data_parallel", json!(3), &["layout", "GPUs"]),
        ("/runners_up", json!(null), &["line", "column"]),
    ];
    thread::scope(|scope| {
        for (pointer, value, words) in edits {
            let (place, good) = (&place, &good);
            scope.spawn(move || {
                let mut plan = good.clone();
                let old = plan.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}"));
                assert_ne!(old, value, "{pointer}");
                *old = value.clone();
                let name = pointer.replace('/', "-") + &value.to_string().replace('"', "");
                let path = place.write(&name, serde_json::to_string_pretty(&plan).unwrap());
                let args = ["explain", path.as_str()];
                check_error(&planner(&args), &[pointer, &value.to_string()], words);
            });
        }
    });
    for key in good.as_object().unwrap().keys() {
        let mut plan = good.clone();
        plan.as_object_mut().unwrap().remove(key);
        place.write("bad.json", plan.to_string());
        place.fails("explain {}/bad.json", &["bad.json", key, "line 1"]);
    }
    let mut unknown = good.clone();
    unknown["layout"]["sharding"] = json!(2);
    place.write("bad.json", serde_json::to_string_pretty(&unknown).unwrap());
    place.fails("explain {}/bad.json", &["sharding", "line", "may have"]);
    place.fails(
        "explain {}/model.json",
        &["model.json", "the description of a model, not a plan", "planner search"],
    );
}

#[test]
fn plans_that_were_cut_short() {
    let place = Workplace::new();
    let text = serde_json::to_string_pretty(&plan(&place)).unwrap();
    for share in [1, 2, 5, 9] {
        place.write("bad.json", &text[..text.len() * share / 10]);
        place.fails("explain {}/bad.json", &["bad.json", "line", "column", "the file ends here"]);
    }
}
