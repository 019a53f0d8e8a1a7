//! Offload to the host: memory, time, and what a search finds with it.

use ir::layout::{Offload, PartialLayout, ZeroStage};
use planner_core::problem::Problem;
use planner_core::search::{Request, simulated};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use traces::timeline::{Activity, CopyDestination, Stream};

use crate::bad_input::Workplace;
use crate::checks::{checked_plans, plans};
use crate::cli::planner;
use crate::random::{Setup, drawn, named_schedules, requests, setups};

fn offloads() -> impl Strategy<Value = Offload> {
    let all = [
        "optimizer",
        "optimizer,parameters",
        "activations",
        "optimizer,parameters,activations",
        "activations:query_key_value+attention+attention_output+expert_inputs",
    ];
    select(all.map(|text| text.parse::<Offload>().unwrap()).to_vec())
}

fn with_offload(request: &Request, offload: Offload) -> Request {
    let fixed = PartialLayout { offload: offload.into(), ..request.fixed };
    Request { fixed, ..*request }
}

/// The setup's problem, of which each GPU has so much of its host for each byte of a parameter's states.
fn with_host(mut setup: Setup, plenty: f64) -> Problem {
    let mut host = ir::cluster::Cluster::from_json(&cost_models_h100()).unwrap().host.unwrap();
    let states = 16.0 * setup.problem().parameters().total as f64 / f64::from(setup.num_gpus);
    let all = states * f64::from(setup.cluster.gpus_per_node) * plenty.exp2();
    host.memory = ir::units::Bytes::from_f64(all.max(1.0));
    setup.cluster.host = Some(host);
    setup.problem()
}

fn cost_models_h100() -> String {
    serde_json::to_string(&cost_models::clusters::preset("h100").unwrap()).unwrap()
}

proptest! {
    #![proptest_config(drawn(100))]

    #[test]
    fn bounds_hold_beside_an_offload(
        setup in setups(), (request, named) in (requests(), named_schedules()), offload in offloads(),
        plenty in -2.0..3.0f64,
    ) {
        let problem = with_host(setup, plenty);
        for request in [request, named].map(|request| with_offload(&request, offload)) {
            for found in checked_plans(&problem, &request)? {
                prop_assert_eq!(found.layout.offload, offload);
                let memory = &found.evaluation.memory;
                prop_assert!(problem.fits_with_headroom(memory), "{} {memory:?}", found.layout);
            }
        }
    }

    /// Every gradient that is updated goes to the host, as often as it is reduced; every weight comes back, once a
    /// step, or for each of its uses where it stays there.
    #[test]
    fn copies_are_of_what_is_offloaded(setup in setups(), request in requests(), offload in offloads()) {
        let problem = with_host(setup, 4.0);
        let element = problem.training.compute_bytes();
        let fp32 = problem.training.fp32_gradients || element == 4;
        for found in plans(&problem, &with_offload(&request, offload)) {
            let layout = &found.layout;
            let (_, simulated) = simulated(&problem, *layout, &found.stage_ends);
            let copied = |side| {
                let tracks = simulated.simulation.timeline.tracks.iter();
                let events = tracks.flat_map(|track| track.events.iter());
                let copies = events.filter(|event| {
                    event.stream == Stream::Host
                        && matches!(event.activity, Activity::Copy { to, .. } if to == side)
                });
                copies.map(|event| event.bytes.get()).sum::<u64>()
            };
            if offload.activations.is_some() {
                prop_assert!(copied(CopyDestination::Host) > 0);
                continue;
            }
            // Trained parameters of all ranks of the pipeline, a copy or shard each; buckets round up.
            let out = copied(CopyDestination::Host) / if fp32 { 4 } else { element };
            // PyTorch's FSDP copies the master weights to the device.
            let shards = problem.state_bytes().shard;
            let read = if offload.parameters && shards == 0 { 4 } else { element };
            let back = copied(CopyDestination::Device) / read;
            let m = u64::from(layout.num_micro_batches);
            let times = if layout.zero_stage >= ZeroStage::Gradients { m } else { 1 };
            let uses = if offload.parameters { 2 * m } else { 1 };
            let frozen = problem.parameters().total > problem.parameters().trained;
            if !frozen {
                let few = 4 * 4096 * times.max(uses);
                prop_assert!((out / times).abs_diff(back / uses) <= few, "{out} {times} {back} {uses}");
            }
        }
    }
}

const SMALL: [&str; 7] =
    ["models/llama-3.1-8b", "--gpus", "8", "--global-batch-size", "64", "--quiet", "--format"];

fn evaluated(layout: &str, further: &[&str]) -> Value {
    let args = [&["evaluate"], &SMALL[..], &["json", "--layout", layout], further].concat();
    let output = planner(&args);
    assert_eq!(output.code, Some(0), "{output:?}");
    serde_json::from_str::<Value>(&output.stdout).unwrap()["plans"][0].clone()
}

/// Llama 3.1 8B on 8 ranks with ZeRO 2: 12 bytes a parameter leave the device with the 2 of its gradient.
#[test]
fn the_formulas_of_zero_offload() {
    let of = |further: &[&str]| {
        let kept =
            ["--zero", "2", "--recompute", "none", "--headroom", "0", "--framework", "ideal"];
        evaluated("dp8-mbs1", &[&kept[..], further].concat())
    };
    let (plain, offloaded) = (of(&[]), of(&["--offload", "optimizer"]));
    let memory = |plan: &Value, line: &str| plan["memory"][line].as_u64().unwrap();
    let parameters = 8_030_261_248_u64;
    assert_eq!(memory(&plain, "optimizer_bytes"), 12 * parameters / 8);
    assert_eq!(memory(&plain, "host_bytes"), 0);
    assert_eq!(memory(&offloaded, "optimizer_bytes"), 0);
    assert_eq!(memory(&offloaded, "parameters_bytes"), 2 * parameters);
    assert_eq!(memory(&offloaded, "host_bytes"), 14 * parameters / 8);
    assert!(memory(&offloaded, "gradients_bytes") < memory(&plain, "gradients_bytes") / 4);
    let seconds = |plan: &Value| plan["step_time_seconds"].as_f64().unwrap();
    assert!(seconds(&offloaded) > seconds(&plain));
    // One GPU holds what it could not: 16 bytes a parameter, and its activations.
    let one = |further: &[&str]| {
        let args =
            ["search", "models/llama-3.1-8b", "--gpus", "1", "--quiet", "--global-batch-size"];
        planner(&[&args[..], &["8"], further].concat()).code
    };
    assert_eq!(one(&[]), Some(1));
    assert_eq!(one(&["--offload", "optimizer"]), Some(0));
}

/// The paper's own case: 10 billion parameters on one V100, micro-batches of 10. It reaches 40 teraFLOP/s there,
/// which is model FLOPs and those of recompute, or model FLOPs alone: both readings are left room, and what
/// machines with V100 differ from each other.
#[test]
fn ten_billion_parameters_on_one_gpu() {
    let place = Workplace::new();
    let model = r#"{"model_type": "gpt2", "n_layer": 50, "n_embd": 4096, "n_head": 32, "n_positions": 1024,
        "vocab_size": 50257}"#;
    let model = place.write("ten-billion.json", model);
    // The loss was Megatron-LM's.
    let mut framework = cost_models::frameworks::preset("deepspeed").unwrap();
    framework.kernels.loss.gradient = ir::graph::LossGradient::OverCopy;
    let framework = place.write("deepspeed.json", serde_json::to_string(&framework).unwrap());
    let search = |offload: &str| {
        let args = ["search", &model, "--gpus", "1", "--cluster", "v100", "--framework"];
        let further = [&framework, "--precision", "fp16", "--seq-len", "1024", "--recompute"];
        let rest = ["full", "--global-batch-size", "510", "--micro-batch-size", "10"];
        let last = ["--format", "json", "--quiet", "--headroom", "0", "--offload", offload];
        planner(&[&args[..], &further, &rest, &last].concat())
    };
    assert_eq!(search("none").code, Some(1));
    let output = search("optimizer");
    assert_eq!(output.code, Some(0), "{output:?}");
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    let best = &found["plans"][0];
    // Gradients leave as they are made, which is the second stage of ZeRO.
    assert_eq!(best["layout"]["zero_stage"], 2);
    let rate = best["mfu"].as_f64().unwrap() * 125.0;
    assert!((40.0 * 0.75..40.0 * 1.4).contains(&rate), "{rate} teraFLOP/s");
}

/// The GPUs of a host share it, so that one which has it alone updates all as soon as eight their shards; two
/// hosts take half as long.
#[test]
fn a_host_is_shared_by_the_gpus_in_use() {
    let seconds = |num_gpus: &str| {
        let layout = format!("dp{num_gpus}");
        let args = ["evaluate", "models/llama-3.1-8b", "--gpus", num_gpus, "--layout", &layout];
        let rest = ["--format", "json", "--quiet", "--zero", "2", "--offload", "optimizer"];
        let plans: Value =
            serde_json::from_str(&planner(&[&args[..], &rest].concat()).stdout).unwrap();
        plans["plans"][0]["breakdown"]["optimizer_seconds"].as_f64().unwrap()
    };
    let (one, eight, sixteen) = (seconds("1"), seconds("8"), seconds("16"));
    assert!((eight / one - 1.0).abs() < 0.01, "{one} {eight}");
    // Beside the update, each step has a time of the host's own.
    assert!((sixteen / eight - 0.5).abs() < 0.02, "{eight} {sixteen}");
}

#[test]
fn what_cannot_be_offloaded() {
    let place = Workplace::new();
    let check = |args: &str, words: &[&str]| {
        let words = [words, &["hint"]].concat();
        place.fails(&format!("evaluate {{}}/model.json --gpus 2 {args}"), &words);
    };
    check("--layout dp2 --offload everything", &["everything", "optimizer, parameters"]);
    check("--layout dp2 --zero 2 --offload optimizer,parameters", &["zero_stage", "2", "--zero 3"]);
    check("--layout dp2 --zero 3 --offload parameters", &["parameters", "--offload optimizer,"]);
    check("--layout dp2 --offload activations:0", &["activations:0", "activations:20"]);
    check("--layout dp2 --offload activations:99", &["activations:99", "blocks", "`activations`"]);
    check("--layout dp2 --offload activations:norms", &["activations:norms", "expert_inputs"]);
    check("--layout dp2 --offload activations:moe_act", &["none of them", "query_key_value"]);
    check("--layout dp2 --cluster rtx-4090 --offload optimizer", &["host", "memory_bytes"]);
    place.fails(
        "evaluate {}/model.json --gpus 2 --layout pp2 --schedule async-1f1b --offload optimizer",
        &["async-1f1b", "optimizer"],
    );
    place.fails(
        "evaluate {}/model.json --gpus 2 --layout dp2 --offload optimizer --data-parallel-method ring-averaging",
        &["ring-averaging", "offload", "none"],
    );
}

/// Activations of 20 of 32 layers leave those of 12 and one on its way; what all keep is what they keep without.
#[test]
fn activations_of_some_layers() {
    let memory = |plan: &Value, line: &str| plan["memory"][line].as_f64().unwrap();
    let of = |offload: &str| {
        evaluated("dp8-mbs1", &["--zero", "2", "--recompute", "none", "--offload", offload])
    };
    let (all, some, more) = (of("none"), of("activations:20"), of("activations:21"));
    let block = memory(&more, "host_bytes") - memory(&some, "host_bytes");
    assert!((memory(&some, "host_bytes") / block - 20.0).abs() < 1e-6);
    let less = memory(&all, "activations_bytes") - memory(&some, "activations_bytes");
    assert!((less / block - 19.0).abs() < 1e-6, "{less} {block}");
    let seconds = |plan: &Value| plan["step_time_seconds"].as_f64().unwrap();
    assert!(seconds(&some) >= seconds(&all));
}

/// What a framework offloads in addition to what is searched, and said where it is not.
#[test]
fn frameworks_offload_activations_beside_what_they_can() {
    let search = |framework: &str, offload: &str, further: &[&str]| {
        let args = ["search", "models/llama-3.1-8b", "--gpus", "8", "--framework", framework];
        let rest =
            ["--global-batch-size", "64", "--quiet", "--format", "json", "--offload", offload];
        planner(&[&args[..], &rest, further].concat())
    };
    let layouts = |framework: &str, offload: &str| {
        let output = search(framework, offload, &[]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let found: Value = serde_json::from_str(&output.stdout).unwrap();
        found["plans"].as_array().unwrap().iter().map(|it| it["layout"].clone()).collect::<Vec<_>>()
    };
    for layout in layouts("megatron-core", "activations:12") {
        assert_eq!(
            (&layout["recompute"], &layout["pipeline_parallel"]),
            (&"none".into(), &1.into())
        );
    }
    for layout in layouts("deepspeed", "activations") {
        assert_eq!(layout["recompute"], "full");
    }
    let refused = |framework: &str, offload: &str, further: &[&str], word: &str| {
        let output = search(framework, offload, further);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(word), "no `{word}` in {}", output.stderr);
    };
    refused("megatron-core", "activations:12", &["--pp", "2"], "without recompute, pipelines");
    refused("megatron-core", "activations", &[], "fewer than all layers");
    refused("megatron-core", "activations:32", &[], "fewer than all layers");
    refused("deepspeed", "activations:12", &[], "all blocks, with full recompute");
    refused("torchtitan", "activations", &[], "offload of activations");
}

/// Activations of two blocks are on the device: what leaves in forward and comes back in backward takes its time in
/// each.
#[test]
fn copies_of_activations_hold_up_both_passes() {
    let place = Workplace::new();
    let mut cluster: Value = serde_json::from_str(&cost_models_h100()).unwrap();
    cluster["host_link_bandwidth_bytes_per_second"] = 20e9.into();
    let file = place.write("slow.json", cluster.to_string());
    for zero in ["1", "3"] {
        let options = ["--recompute", "none", "--offload", "activations", "--framework", "ideal"];
        let plan = evaluated(
            "dp8-mbs1",
            &[&["--zero", zero, "--headroom", "0", "--cluster", &file], &options[..]].concat(),
        );
        let bytes = plan["memory"]["host_bytes"].as_f64().unwrap();
        // Eight micro-batches; buckets are rounded, and the last copy of a forward overlaps its backward.
        let copies = 2.0 * 8.0 * bytes / 20e9 * 0.98;
        let step = plan["step_time_seconds"].as_f64().unwrap();
        assert!(
            (copies..2.0 * copies).contains(&step),
            "{zero}: {step} s for {copies} s of copies"
        );
    }
}

/// A host without room is told with its numbers, and nothing is found.
#[test]
fn a_host_that_is_too_small() {
    let place = Workplace::new();
    let mut cluster: Value = serde_json::from_str(&cost_models_h100()).unwrap();
    cluster["host"]["memory_bytes"] = 64e9.into();
    let file = place.write("small.json", cluster.to_string());
    let args = ["evaluate", "models/llama-3.1-8b", "--gpus", "8", "--layout", "dp8", "--zero", "2"];
    let output = planner(&[&args[..], &["--offload", "optimizer", "--cluster", &file]].concat());
    assert_eq!(output.code, Some(1), "{output:?}");
    let text = output.stdout;
    for word in ["no layout fits", "of host memory for each GPU", "14.96 GiB of 7.45 GiB"] {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
}
