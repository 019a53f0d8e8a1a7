//! Choice of plans: by the framework, by what users list, and by what the model can tell apart.

use std::fs;
use std::path::Path;

use cost_models::frameworks;
use ir::framework::{Features, Framework, JobFacts};
use ir::layout::{Choice, Layout, LayoutSpec, MeshAxis, PartialLayout, ZeroStage};
use ir::model::GraphOptions;
use planner_core::search::{
    EvaluatedPlan, Go, RESOLUTION, Request, SIMPLICITY_TOLERANCE, chosen, search,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::bad_input::Workplace;
use crate::cli::{evaluated, planner, run};
use crate::random::{Setup, drawn, requests, setups};

const EIGHT: [&str; 6] = ["search", "models/llama-3.1-8b", "--gpus", "8", "--format", "json"];

fn found(args: &[&str]) -> Value {
    let run = planner(&[&EIGHT[..], args].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

/// A layout as a user names it, whole.
pub(crate) fn named(layout: &Layout) -> PartialLayout {
    let schedule = (layout.pipeline_parallel > 1).then_some(layout.schedule).into();
    let (micro_batch_size, offload) = (Choice::Any, Choice::Any);
    PartialLayout { schedule, micro_batch_size, offload, ..PartialLayout::from(&**layout) }
}

fn plans(setup: &Setup, request: &Request) -> Vec<EvaluatedPlan> {
    search(&setup.problem(), request, &mut |_| Go::On).plans
}

proptest! {
    #![proptest_config(drawn(200))]

    /// Whatever is proposed, the framework can run; and all that it could run if what is named could be run, it
    /// lacks nothing of.
    #[test]
    fn what_is_proposed_can_be_run(setup in setups(), request in requests(), place in 0..13usize) {
        let framework: Framework = frameworks::all().nth(place).expect("as many ship");
        let setup = Setup { framework, ..setup };
        let facts = setup.problem().facts;
        let abilities = &setup.framework.abilities;
        for found in plans(&setup, &Request { top: 5, ..request }) {
            let layout = named(&found.layout);
            prop_assert_eq!(abilities.lacks(&layout, facts), Vec::<String>::new(), "{}", found.layout);
        }
        let able = abilities.with(&request.fixed, facts);
        prop_assert_eq!(able.lacks(&request.fixed, facts), Vec::<String>::new());
    }

    /// The fastest is among those shown, no plan is shown twice, the first is within what can be told apart, but for a
    /// framework that stands for others, of which it is the one that loses least; and likelihoods are shares.
    #[test]
    fn the_fastest_is_shown(setup in setups(), request in requests(), top in 1usize..6) {
        let all = plans(&setup, &Request { top: 32, ..request });
        let shown = chosen(&setup.problem(), &all, top);
        prop_assert_eq!(shown.is_empty(), all.is_empty());
        let Some(first) = shown.first() else { return Ok(()) };
        prop_assert!(shown.len() <= top);
        let least = all[0].evaluation.step_time.get();
        let is_by_time = setup.framework.stands_for.is_empty();
        let time = first.found.evaluation.step_time.get();
        prop_assert!(!is_by_time || time <= least * (1.0 + RESOLUTION));
        prop_assert!(top == 1 || shown.iter().filter(|it| it.is_fastest).count() == 1);
        let sum: f64 = shown.iter().map(|it| it.likelihood).sum();
        prop_assert!(shown.iter().all(|it| (0.0..=1.0 + 1e-6).contains(&it.likelihood)), "{shown:?}");
        for (place, one) in shown.iter().enumerate() {
            prop_assert!(shown[..place].iter().all(|other| other.found != one.found));
        }
        // Two of the same kind, the simplest and the fastest, share theirs.
        prop_assert!(sum <= 2.0 + 1e-6, "{sum}");
    }

    /// No plan is shown, but for the fastest, where one with fewer stages on each rank and else the same degrees and
    /// switches is within what may be given up for simplicity.
    #[test]
    fn stages_that_gain_nothing_that_can_be_told_are_not_shown(setup in setups(), request in requests()) {
        let all = plans(&setup, &Request { top: 32, ..request });
        let shown = chosen(&setup.problem(), &all, 5);
        let is_by_time = setup.framework.stands_for.is_empty();
        let kind = |layout: &Layout| {
            let degrees = [
                layout.tensor_parallel,
                layout.context_parallel,
                layout.expert_parallel,
                layout.pipeline_parallel,
            ];
            (degrees, layout.zero_stage == ZeroStage::Parameters)
        };
        for one in shown.iter().filter(|it| is_by_time && !it.is_fastest) {
            let of_kind = || all.iter().filter(|it| kind(&it.layout) == kind(&one.found.layout));
            let least = of_kind().map(|it| it.evaluation.step_time.get()).fold(f64::INFINITY, f64::min);
            for other in of_kind() {
                let layout = LayoutSpec {
                    virtual_stages: one.found.layout.virtual_stages,
                    schedule: one.found.layout.schedule,
                    ..*other.layout
                };
                let is_near = other.evaluation.step_time.get() <= least * (1.0 + SIMPLICITY_TOLERANCE);
                let has_fewer = other.layout.virtual_stages < one.found.layout.virtual_stages;
                prop_assert!(!(is_near && has_fewer && layout == *one.found.layout), "{}", other.layout);
            }
        }
    }

    /// What is listed restricts as fixing each value in turn does: the best among several is the best of each.
    #[test]
    fn a_list_is_as_its_values_one_by_one(setup in setups(), tensor in 1u32..5, pipeline in 1u32..5) {
        let among = PartialLayout {
            tensor_parallel: format!("..{tensor}").parse().unwrap(),
            pipeline_parallel: format!("1,{pipeline}").parse().unwrap(),
            ..PartialLayout::default()
        };
        let request = |fixed| Request { fixed, find_closest: false, ..Request::default() };
        let best = plans(&setup, &request(among)).into_iter().next();
        let mut each = Vec::new();
        for tensor in 1..=tensor {
            for pipeline in [1, pipeline] {
                let fixed = PartialLayout {
                    tensor_parallel: tensor.into(),
                    pipeline_parallel: pipeline.into(),
                    ..PartialLayout::default()
                };
                each.extend(plans(&setup, &request(fixed)));
            }
        }
        let time = |found: &EvaluatedPlan| found.evaluation.step_time;
        let least = each.iter().map(time).min_by(|a, b| a.get().total_cmp(&b.get()));
        prop_assert_eq!(best.as_ref().map(time), least);
    }
}

/// What no framework of those in use can run is planned without limits, and said so.
#[test]
fn the_framework_is_the_first_that_can() {
    for (args, name, is_real) in [
        (&[][..], "megatron-core", true),
        (&["--schedule", "zbv", "--pp", "2"], "torchtitan", true),
        (&["--schedule", "zb-h2", "--pp", "2"], "ideal", false),
        (&["--zero", "3", "--pp", "2"], "torchtitan", true),
        (&["--framework", "nanotron", "--tp", "8"], "nanotron", true),
    ] {
        let report = found(args);
        assert_eq!(report["framework"]["name"], name, "{args:?}");
        assert_eq!(report["framework"]["is_real"], is_real, "{args:?}");
    }
    let run =
        planner(&["search", "models/llama-3.1-8b", "--gpus", "8", "--framework", "ideal", "-q"]);
    assert!(run.stdout.contains("framework ideal: layouts are not limited"), "{}", run.stdout);
}

/// A framework's file is read as those that ship are, and a plan holds it.
#[test]
fn a_framework_of_ones_own_is_taken() {
    let place = Workplace::new();
    let mut framework = serde_json::to_value(frameworks::preset("megatron-core").unwrap()).unwrap();
    framework["name"] = "ours".into();
    framework["abilities"]["schedules"] = serde_json::json!([]);
    let (path, plan) = (place.write("ours.json", framework.to_string()), place.path("plan.json"));
    let report = found(&["--framework", &path, "-o", &plan]);
    assert_eq!(report["framework"]["name"], "ours");
    for found in report["plans"].as_array().unwrap() {
        assert_eq!(found["layout"]["pipeline_parallel"], 1);
    }
    fs::remove_file(path).unwrap();
    let explained = planner(&["explain", &plan]);
    assert_eq!(explained.code, Some(0), "{explained:?}");
}

/// Gradients in 16 bits that are reduced in 32 send twice as many bytes; the gather of parameters, half as many bytes
/// as their all-reduce, stays.
#[test]
fn gradients_may_be_reduced_in_another_format() {
    let place = Workplace::new();
    let [held, fp32] = ["held", "fp32"].map(|format| {
        let mut framework = serde_json::to_value(frameworks::preset("scaling").unwrap()).unwrap();
        framework["gradients"]["reduced_as"] = format.into();
        let path = place.write(&format!("{format}.json"), framework.to_string());
        let job = "models/llama-3.2-1b --gpus 16 --cluster a100 --layout dp16-zero1-mbs1";
        let plan = evaluated(&format!("{job} --framework {path}"));
        plan["breakdown"]["data_parallel_seconds"].as_f64().unwrap()
    });
    assert!((1.6..1.7).contains(&(fp32 / held)), "{fp32} {held}");
}

#[test]
fn what_a_framework_cannot_run_is_refused_by_search_and_answered_by_evaluate() {
    let place = Workplace::new();
    place.fails(
        "search {}/model.json --gpus 8 --framework megatron-core --zero 3 --pp 2",
        &["`megatron-core` cannot run", "ZeRO 3 with pipelines", "hint:", "ideal"],
    );
    place.fails(
        "search {}/model.json --gpus 8 --framework fsdp --tp 2",
        &["`fsdp` cannot run", "tensor parallelism"],
    );
    place.write("bad.json", "{}");
    place.fails("search {}/model.json --gpus 8 --framework {}/bad.json", &["bad.json", "line 1"]);
    let model = place.path("model.json");
    let evaluate = ["evaluate", &model, "--gpus", "8", "--layout", "pp2-dp4-zero3", "-q"];
    let run = planner(&[&evaluate[..], &["--framework", "megatron-core"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("megatron-core cannot run this: it has no ZeRO 3 with"), "{run:?}");
}

/// Function by function a step takes longer and keeps more; compiled block by block, the loss alone keeps more.
/// Exported and imported again, it takes as long.
#[test]
fn what_is_compiled_is_said() {
    let args = ["evaluate", "models/llama-3.1-8b", "--gpus", "8", "--layout", "dp8-zero3-mbs1"];
    let rest = ["--framework", "torchtitan", "--cluster", "h200", "--recompute", "none"];
    let quiet = ["--format", "json", "--quiet"];
    let place = Workplace::new();
    let [none, regional, full] = ["none", "regional", "full"].map(|compile| {
        let plan = place.path(&format!("{compile}.json"));
        let chosen = ["--compile", compile, "-o", &plan];
        let found =
            planner(&[&args[..], &rest, &quiet, &chosen].concat()).json()["plans"][0].clone();
        let job = place.path(compile);
        assert_eq!(planner(&["export", &plan, "--to", "torchtitan", "-o", &job]).code, Some(0));
        let (script, again) = (format!("{job}/torchtitan.sh"), place.path("again.json"));
        let import = ["import", &script, "--model", "models/llama-3.1-8b", "--cluster", "h200"];
        let run = planner(&[&import[..], &["-o", &again]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        let again: Value = serde_json::from_str(&fs::read_to_string(again).unwrap()).unwrap();
        let [time, memory] = ["step_time_seconds", "peak_memory_bytes"]
            .map(|name| [&found[name], &again["prediction"][name]].map(|it| it.as_f64().unwrap()));
        assert!(time[0].total_cmp(&time[1]).is_eq(), "{compile}: {time:?}");
        assert!(memory[0].total_cmp(&memory[1]).is_eq(), "{compile}: {memory:?}");
        [time[0], memory[0]]
    });
    assert!(none[0] > 1.1 * full[0] && none[1] > 1.1 * regional[1], "{none:?} {regional:?}");
    let is_as_fast = regional[0].total_cmp(&full[0]).is_eq();
    assert!(is_as_fast && regional[1] > 1.05 * full[1], "{regional:?} {full:?}");
    place.fails(
        "evaluate models/llama-3.1-8b --gpus 8 --layout dp8 --framework megatron-core --compile none",
        &["megatron-core does not let users choose what is compiled", "`--framework torchtitan`"],
    );
}

/// Logits that are never there at once need no memory; products of fewer tokens and the sums of their gradients take a
/// little more time. What torchtitan's files say is what was planned.
#[test]
fn a_loss_in_pieces_holds_less() {
    let args = "models/llama-3.1-8b --gpus 8 --framework torchtitan --layout dp8-zero3-mbs2 --recompute full";
    let [whole, pieces] = ["", "--loss chunked:8"].map(|more| {
        let found = evaluated(&format!("{args} {more}"));
        ["step_time_seconds", "peak_memory_bytes"].map(|name| found[name].as_f64().unwrap())
    });
    assert!((1.0..1.02).contains(&(pieces[0] / whole[0])), "{whole:?} {pieces:?}");
    // Logits of 2 sequences in 16 bits, and their gradient; a layer that is computed again is the peak without them.
    let logits = 2.0 * 8192.0 * 128_256.0 * 4.0;
    assert!((0.5 * logits..logits).contains(&(whole[1] - pieces[1])), "{whole:?} {pieces:?}");
    let place = Workplace::new();
    let (plan, job) = (place.path("plan.json"), place.path("job"));
    run(&format!("evaluate {args} --loss chunked:6 -o {plan}"));
    let export = planner(&["export", &plan, "--to", "torchtitan", "-o", &job]);
    assert_eq!(export.code, Some(0), "{export:?}");
    let module = fs::read_to_string(place.path("job/planned.py")).unwrap();
    assert!(module.contains("loss=ChunkedLossWrapper.Config(num_chunks=6, "), "{module}");
    let near = planner(&["export", &plan, "--to", "megatron", "--approximate", "-o", &job]);
    let says = "loss of all logits at once in the place of chunked";
    assert!(format!("{}{}", near.stdout, near.stderr).contains(says), "{near:?}");
    let evaluate = "evaluate models/llama-3.1-8b --gpus 8 --layout";
    place.fails(
        &format!("{evaluate} dp8 --framework megatron-core --loss chunked"),
        &["`--loss chunked:8`: megatron-core is not known", "`--framework torchtitan`"],
    );
    place.fails(
        &format!("{evaluate} dp8 --framework torchtitan --loss fused"),
        &["torchtitan is not known to have such a loss", "`--framework fsdp2`"],
    );
    let sharded = run(&format!("{evaluate} tp2-dp4-zero1 --framework fsdp2 --loss fused"));
    let says = "no losses fused with the head with tensor parallelism";
    assert!(sharded.stdout.contains(says), "{sharded:?}");
    let open = run(&format!("{evaluate} dp8 --loss chunked:4 -q"));
    let says = "framework torchtitan (default, as megatron-core does not run `--loss chunked:4`)";
    assert!(open.stdout.contains(says), "{open:?}");
    for (loss, says) in [("chunked:1", "2 or more"), ("linear", "chunked:N or fused")] {
        place.fails(&format!("{evaluate} dp8 --loss {loss}"), &[says]);
    }
}

/// 8B at a million tokens on eight H100 with FSDP2, as trainers of long contexts run it: TRL measured 56.2 GB (issue
/// 6845).
#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn a_million_tokens_fit_with_a_loss_in_chunks() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/oracles/parameters/qwen3-8b");
    if !Path::new(model).exists() {
        eprintln!("skipped: no {model}");
        return;
    }
    let args = "--gpus 8 --framework fsdp2 --layout cp8-zero3 --seq-len 1048576 --global-batch-size 1 --fp32-gradients \
                --recompute full --offload activations --loss chunked";
    let plan = evaluated(&format!("{model} {args}"));
    assert_eq!(plan["fits"], true);
    let ratio = plan["peak_memory_bytes"].as_f64().unwrap() / 56.2e9;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

/// Bytes that each optimizer keeps for the parameters of an 8B model in bf16, with master weights: by the definitions
/// of the optimizers.
#[test]
fn optimizers_keep_what_they_need() {
    let parameters = 8_030_261_248.0;
    // Of the table and the head, and the norms of 32 layers and of the end.
    let outside_matrices = 2.0 * 128_256.0 * 4096.0 + 65.0 * 4096.0;
    // Rows and columns of q and o, of k and v, of the gated activation's three, and of table and head.
    let of_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336);
    let factors = f64::from(32 * of_layer + 2 * (128_256 + 4096) + 65 * 4096);
    for (name, moments) in [
        ("adamw", 8.0 * parameters),
        ("adamw-8bit", 2.0 * (1.0 + 4.0 / 256.0) * parameters),
        ("muon", 4.0 * (parameters + outside_matrices)),
        ("adafactor", 4.0 * factors),
        ("lion", 4.0 * parameters),
        ("momentum", 4.0 * parameters),
        ("sgd", 0.0),
    ] {
        let job =
            "models/llama-3.1-8b --gpus 4 --cluster b300 --framework ideal --layout dp4-zero0";
        let plan = evaluated(&format!("{job} --optimizer {name}"));
        let kept = plan["memory"]["optimizer_bytes"].as_f64().unwrap();
        let expected = 4.0 * parameters + moments;
        assert!((kept / expected - 1.0).abs() < 1e-8, "{name}: {kept}, not {expected}");
    }
}

/// A rank makes the momenta orthogonal of those matrices alone that it owns: with ZeRO 1 each of eight replicas an
/// eighth. Five iterations on the matrices of Llama 3.1 8B are 6.7e14 FLOPs, by hand.
#[test]
fn muon_shares_its_products_among_replicas() {
    let seconds = |optimizer: &str, zero: &str| {
        let job = "models/llama-3.1-8b --gpus 8 --cluster b300 --framework ideal --layout dp8";
        let plan = evaluated(&format!("{job} --optimizer {optimizer} --zero {zero}"));
        plan["breakdown"]["optimizer_seconds"].as_f64().unwrap()
    };
    let of = |rows: f64, columns: f64| 4.0 * rows * rows * columns + 2.0 * rows.powi(3);
    let square = 2.0 * of(4096.0, 4096.0) + 2.0 * of(1024.0, 4096.0);
    let flops = 5.0 * 32.0 * (square + 3.0 * of(4096.0, 14_336.0));
    let whole = seconds("muon", "0") - seconds("momentum", "0");
    let rate = flops / whole;
    assert!((0.4e15..2.5e15).contains(&rate), "{rate:e} FLOP/s");
    let part = seconds("muon", "1") - seconds("momentum", "1");
    assert!((7.0..9.0).contains(&(whole / part)), "{whole} {part}");
    let place = Workplace::new();
    for (args, words) in [
        (
            "search models/llama-3.1-8b --gpus 8 --framework nanotron --optimizer muon",
            &["it has no optimizer muon"][..],
        ),
        (
            "search models/llama-3.1-8b --gpus 8 --optimizer adamw8",
            &["must be one of adamw, adamw-8bit, muon, adafactor, lion, momentum, sgd"],
        ),
        (
            "search models/llama-3.1-8b --gpus 8 --optimizer adamw-8bit --bf16-moments",
            &["no moments in full precision"],
        ),
    ] {
        place.fails(args, words);
    }
}

/// Kernels tuned for their shapes are known on AMD's GPUs, and are faster there.
#[test]
fn tuned_kernels_are_asked_for() {
    let time = |cluster: &str, kernels: &str| {
        let job = "models/llama-3.1-8b --gpus 8 --layout dp8 --framework megatron-core";
        let plan = evaluated(&format!("{job} --cluster {cluster} --kernels {kernels}"));
        plan["step_time_seconds"].as_f64().unwrap()
    };
    for cluster in ["mi300x", "mi355x"] {
        assert!(time(cluster, "tuned") < 0.9 * time(cluster, "heuristic"), "{cluster}");
    }
    Workplace::new().fails(
        "evaluate models/llama-3.1-8b --gpus 8 --layout dp8 --cluster h100 --kernels tuned",
        &["no step with such kernels was measured on GPUs like H100", "`--cluster mi300x`"],
    );
}

/// Number formats and ways of replication are the framework's to have, too; of formats that are not named, it has one
/// that the GPU has.
#[test]
fn formats_are_held_to_the_framework() {
    let place = Workplace::new();
    let search = |rest: &str| format!("search {{}}/model.json --gpus 8 {rest}");
    place.fails(
        &search("--framework megatron-lm --precision fp8"),
        &["`megatron-lm` cannot run", "linear layers in fp8"],
    );
    place.fails(
        &search("--framework nanotron --bf16-moments"),
        &["`nanotron` cannot run", "optimizer moments in bf16"],
    );
    place.fails(
        &search("--framework megatron-core --gradient-compression int8"),
        &["`megatron-core` cannot run", "gradients compressed by int8"],
    );
    let report = found(&["--framework", "megatron-lm-2021", "--cluster", "a100"]);
    assert_eq!(report["training"]["precision"], "fp16");
    let model = place.path("model.json");
    let evaluate = ["evaluate", &model, "--gpus", "8", "--layout", "dp8", "-q"];
    let run =
        planner(&[&evaluate[..], &["--framework", "megatron-lm", "--precision", "fp8"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("cannot run this: it has no linear layers in fp8"), "{run:?}");
}

/// What a count does not divide by has counts next to it that do.
#[test]
fn counts_that_do_not_divide_have_proposals() {
    let place = Workplace::new();
    for (args, hint) in [
        ("--gpus 8 --layout dp8 --global-batch-size 100", "hint: a batch of 96 or 104"),
        ("--gpus 12 --layout tp8", "hint: 8 or 16 GPUs, or degrees whose product is 6"),
        ("--gpus 4 --layout tp8", "hint: 8 GPUs, or degrees whose product is 4"),
    ] {
        place.fails(&format!("evaluate {{}}/model.json {args}"), &[hint]);
    }
}

/// Layers with experts are bound by the host, unless graphs launch them, and what hides exchanges costs nothing.
#[test]
fn graphs_and_overlap_take_no_longer() {
    let job = "models/qwen3-30b-a3b --gpus 16 --layout ep16-dp16-mbs1 --seq-len 4096 --recompute none --framework \
               megatron-core --zero 1";
    for dispatcher in ["all-to-all", "deep-ep"] {
        let of = |graphs: &str, overlap: &str| {
            let switches = format!("--token-dispatcher {dispatcher} --cuda-graphs {graphs}");
            let plan = evaluated(&format!("{job} {switches} --expert-overlap {overlap}"));
            plan["step_time_seconds"].as_f64().unwrap()
        };
        let mut with_fewer = f64::INFINITY;
        for graphs in ["none", "layers", "iteration"] {
            let [apart, beside] = ["none", "micro-batch"].map(|overlap| of(graphs, overlap));
            assert!(apart <= with_fewer, "{dispatcher} {graphs}: {apart} {with_fewer}");
            assert!(beside <= apart * 1.001, "{dispatcher} {graphs}: {apart} {beside}");
            with_fewer = apart;
        }
    }
}

#[test]
fn lists_that_leave_nothing_are_named() {
    let place = Workplace::new();
    let search = |rest: &str| format!("search {{}}/model.json --gpus 8 {rest}");
    place.fails(&search("--tp 3,5"), &["`--tp 3,5` by itself leaves no layout", "hint: widen"]);
    place.fails(
        &search("--tp 4,8 --pp 4.. --dp ..2 --zero 0,1"),
        &["`--tp 4,8` and `--pp 4..` together leave no layout", "hint: widen one"],
    );
    place.fails(&search("--tp 0,1"), &["--tp", "whole number"]);
    place.fails(&search("--pp 8..2"), &["--pp", "range"]);
    place.fails(&search("--recompute full --without recompute"), &["--without recompute"]);
    place.fails(&search("--headroom 90"), &["`--headroom` 90", "leaves nothing", "hint:"]);
}

#[test]
fn lists_restrict() {
    let report = found(&["--tp", "1,2", "--pp", "..2", "--zero", "0,1", "--schedule", "1f1b"]);
    for plan in report["plans"].as_array().unwrap() {
        let layout = &plan["layout"];
        let degree = |name: &str| layout[name].as_u64().unwrap();
        assert!(degree("tensor_parallel") <= 2 && degree("pipeline_parallel") <= 2, "{layout}");
        assert!(degree("zero_stage") <= 1 && layout["schedule"] == "1f1b", "{layout}");
    }
    let report = found(&["--without", "cp,pp,recompute"]);
    for plan in report["plans"].as_array().unwrap() {
        let layout = &plan["layout"];
        assert_eq!([&layout["context_parallel"], &layout["pipeline_parallel"]], [1, 1], "{layout}");
        assert_eq!(layout["recompute"], "none");
    }
}

#[test]
fn headroom_stays_free() {
    let gib =
        |report: &Value| report["plans"][0]["peak_memory_bytes"].as_f64().unwrap() / 2f64.powi(30);
    let (usual, roomy) = (found(&[]), found(&["--headroom", "40"]));
    assert!(gib(&roomy) <= 39.7 && gib(&usual) > 39.7, "{} and {}", gib(&usual), gib(&roomy));
    for plan in roomy["plans"].as_array().unwrap() {
        assert_eq!([&plan["fits"], &plan["fits_with_headroom"]], [true, true]);
    }
    let (faster, open) = (&roomy["faster_with_less_headroom"], found(&["--headroom", "0"]));
    assert_eq!(faster["step_time_seconds"], open["plans"][0]["step_time_seconds"]);
    let offload = ["--framework", "megatron-core", "--offload", "activations:attention"];
    let offloading = found(&[&offload[..], &["--seq-len", "8192", "--headroom", "20"]].concat());
    assert_eq!(offloading["faster_with_less_headroom"]["fits"], true);
}

/// Facts of a model decide what a framework can do with it.
#[test]
fn experts_are_for_those_that_have_them() {
    let facts = JobFacts {
        has_experts: true,
        num_blocks: 34,
        key_value_heads: Some(8),
        sequence_length: None,
        global_batch_size: None,
        features: Features::NONE,
    };
    let lacks = |name: &str, layout: &str| {
        let abilities = frameworks::preset(name).unwrap().abilities;
        abilities.lacks(&layout.parse().unwrap(), facts)
    };
    assert_eq!(lacks("megatron-lm", "tp8"), ["mixtures of experts"]);
    assert_eq!(lacks("megatron-core", "tp8-nosp-ep8").len(), 1);
    assert!(lacks("megatron-core", "tp8-sp-ep8-dp8").is_empty());
}

#[test]
fn pipeline_neighbours_are_furthest_apart() {
    let args = "evaluate models/llama-3.1-8b --gpus 16 --layout tp2-cp2-pp2-dp2 --format json";
    let report = run(args).json();
    let spec = serde_json::from_value(report["plans"][0]["layout"].clone()).unwrap();
    let model = fs::read_to_string(crate::cli::root().join("models/llama-3.1-8b/config.json"));
    let model = ir::model::Model::from_json(&model.unwrap(), "model").unwrap();
    let graph = model.training_graph(GraphOptions::default(), None).unwrap();
    let batch = report["training"]["global_batch_size"].as_u64().unwrap();
    let limits = ir::layout::Limits::new(&graph, 16, batch, 8192);
    let layout = Layout::new(spec, &limits).unwrap();
    let strides = [MeshAxis::Tensor, MeshAxis::Context, MeshAxis::ContextData, MeshAxis::Pipeline]
        .map(|axis| layout.mesh().stride(axis));
    assert_eq!(strides, [1, 2, 2, 8]);
}

/// The same bytes at any number of threads and at any time, but for the time it took.
#[test]
fn results_do_not_depend_on_threads() {
    for model in ["models/llama-3.1-8b", "models/mixtral-8x7b"] {
        let run = |threads: &str| {
            let args = ["search", model, "--gpus", "16", "--format", "json", "--threads", threads];
            let run =
                planner(&[&args[..], &["--seq-len", "4096", "--global-batch-size", "64"]].concat());
            assert_eq!(run.code, Some(0), "{run:?}");
            let lines = run.stdout.lines().filter(|line| !line.contains("\"elapsed_seconds\""));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let first = run("1");
        for threads in ["1", "2", "5"] {
            assert_eq!(run(threads), first, "{model} with {threads} threads");
        }
    }
}

/// Of a stack that nobody knows, what is chosen need not be what the point estimates have first: its plan is read all
/// the same.
#[test]
fn a_plan_of_an_unknown_stack_is_read() {
    let place = Workplace::new();
    for (model, gpus, cluster) in [("qwen2.5-7b", "16", "h100"), ("smollm3-3b", "12", "v100")] {
        let (plan, path) = (place.path(&format!("{model}.json")), format!("models/{model}"));
        let args = ["search", &path, "--gpus", gpus, "--cluster", cluster, "--framework"];
        let run = planner(&[&args[..], &["unknown", "-q", "-o", &plan]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(planner(&["explain", &plan]).code, Some(0), "{model}");
    }
}
