//! Stages that are given by hand.

use ir::model::{GraphOptions, Model};
use planner_core::problem::{GivenStages, Problem, StagesError};
use planner_core::search::{Go, Outcome, Request, search};
use proptest::prelude::*;
use serde_json::Value;

use crate::bad_input::Workplace;
use crate::checks::{check_found, check_timeline};
use crate::cli::planner;
use crate::random::{drawn, named_schedules, requests, setups};

const EIGHT: [&str; 4] = ["models/llama-3.1-8b", "--gpus", "8", "--quiet"];

fn run(problem: &Problem, request: &Request) -> Outcome {
    search(problem, request, &mut |_| Go::On)
}

/// What a search finds with stages that are given: what playing all of them finds, each with these stages.
fn check(problem: &Problem, request: &Request) -> Result<(), TestCaseError> {
    let given = problem.stages.as_ref().unwrap();
    let pruned = run(problem, request);
    let all = run(problem, &Request { exhaustive: true, ..*request });
    prop_assert_eq!(&pruned.plans, &all.plans);
    prop_assert_eq!(pruned.counts.candidates, all.counts.candidates);
    prop_assert_eq!(pruned.closest.is_some(), all.closest.is_some());
    for found in pruned.plans.iter().chain(&pruned.closest) {
        prop_assert_eq!(&found.stage_ends[..], &given.ends()[..]);
        check_found(problem, found)?;
        check_timeline(problem, found)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(drawn(100))]

    #[test]
    fn bounds_hold_for_stages_that_are_given(
        setup in setups(),
        (request, named) in (requests(), named_schedules()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let problem = setup.problem();
        let layers = problem.graph.num_blocks() - 2;
        let mut ends: Vec<usize> = cuts.iter().map(|cut| 1 + cut.index(layers + 1)).collect();
        ends.sort_unstable();
        ends.dedup();
        ends.push(layers + 2);
        let starts = std::iter::once(1).chain(ends.iter().copied());
        let mut counts: Vec<u32> = starts.zip(&ends).map(|(start, end)| (end - start) as u32).collect();
        // The last end is that of the head, which is not counted.
        *counts.last_mut().unwrap() -= 1;
        let model = Model::from_json(&setup.model.to_string(), "model").unwrap();
        let given = GivenStages::new(&model, &problem.graph, &counts, None).unwrap();
        prop_assert_eq!(&given.ends()[..], &ends[..]);
        let problem = problem.with_stages(Some(given));
        check(&problem, &request)?;
        check(&problem, &named)?;
    }
}

#[test]
fn layers_are_counted_without_embedding_and_head() {
    let given = |model: &str, counts: &[u32]| {
        let text = std::fs::read_to_string(crate::cli::root().join("models").join(model)).unwrap();
        let model = Model::from_json(&text, "model").unwrap();
        GivenStages::new(
            &model,
            &model.training_graph(GraphOptions::default(), None).unwrap(),
            counts,
            None,
        )
    };
    let llama = "llama-3.1-8b/config.json";
    let ends = |counts| given(llama, counts).unwrap().ends().to_vec();
    assert_eq!(ends(&[7, 9, 9, 7]), [8, 17, 26, 34]);
    assert_eq!(ends(&[0, 16, 16, 0]), [1, 17, 33, 34]);
    assert_eq!(ends(&[32]), [34]);
    let say = |model, counts| given(model, counts).unwrap_err().to_string();
    assert_eq!(
        say(llama, &[8, 9, 9, 7]),
        "the stages given have 33 layers together, but the model has 32\nhint: 8,8,8,8 fits"
    );
    assert_eq!(
        say(llama, &[16, 0, 16]),
        "stage 2 of 3 is given no layers; only the first, with the embedding, and the last, with the head, may \
         have none\nhint: 11,11,10 fits"
    );
    assert_eq!(
        say(llama, &[1; 40]),
        "40 stages are given, but the model has only 34 blocks to put on them\nhint: 34 stages at most"
    );
    // Its blocks are no layers: all count.
    let blocks = given("toy-mlp.json", &[1]).unwrap_err();
    let StagesError::Sum { counted: "blocks", has, .. } = blocks else { panic!("{blocks}") };
    assert_eq!(given("toy-mlp.json", &[1, has as u32 - 1]).unwrap().ends()[..], [1, has as usize]);
}

#[test]
fn stages_are_planned_kept_and_explained() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let evaluate =
        [&["evaluate"], &EIGHT[..], &["--layout", "tp2", "--stages", "7,9,9,7"]].concat();
    let run = planner(&[&evaluate[..], &["-o", &plan]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("stages given by hand: 7,9,9,7 layers\n"), "{}", run.stdout);
    assert!(run.stdout.contains("tp2-"), "{}", run.stdout);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    assert_eq!(written["stages_by_hand"], true);
    let sizes = written["stages"].as_array().unwrap().iter().map(|stage| &stage["num_blocks"]);
    assert_eq!(sizes.collect::<Vec<_>>(), [8, 9, 9, 8]);
    let explained = planner(&["explain", &plan]);
    let words = "in the order of the model (given by hand); the first has the embedding too, the last the head:\n  7 9 9 7\n";
    assert!(explained.stdout.contains(words), "{}", explained.stdout);
    assert_eq!(planner(&["simulate", &plan]).code, Some(0));

    // A plan of before says nothing of it.
    let mut old = written;
    old.as_object_mut().unwrap().remove("stages_by_hand");
    let old = place.write("old.json", old.to_string());
    let explained = planner(&["explain", &old]);
    assert!(!explained.stdout.contains("by hand"), "{explained:?}");

    let found =
        planner(&[&["search"], &EIGHT[..], &["--stages", "16,16", "--format", "json"]].concat());
    let found = found.json();
    assert_eq!(found["stages_by_hand"], true);
    for plan in found["plans"].as_array().unwrap() {
        assert_eq!(plan["stage_ends"], serde_json::json!([17, 34]));
        assert_eq!(plan["layout"]["pipeline_parallel"], 2);
    }
}

#[test]
fn stages_that_cannot_be() {
    let place = Workplace::new();
    let fails = |stages: &str, words: &[&str]| {
        for command in ["search", "evaluate --layout tp1"] {
            let args = format!("{command} {{}}/model.json --gpus 8 --stages {stages}");
            place.fails(&args, &[words, &["--stages"]].concat());
        }
    };
    fails("1,2", &["3 layers", "has 4", "hint: 2,2 fits"]);
    fails("2,0,2", &["stage 2 of 3", "hint: 1,2,1 fits"]);
    fails("2,-2", &["whole numbers"]);
    fails("2,", &["whole numbers"]);
    fails("1,1,1,1,1,1,1", &["7 stages", "only 6 blocks"]);
    for (args, words) in [
        (
            "--stages 1,2,1 --pp 2",
            &["3 stages are given", "`pipeline_parallel` 2", "hint: `--stages 2,2`"][..],
        ),
        ("--stages 2,2 --pp 2 --vpp 2", &["are 4 stages, but 2", "hint: `virtual_stages` 1"]),
        ("--stages 1,2,1", &["no layout on 8 GPUs"]),
    ] {
        place.fails(&format!("search {{}}/model.json --gpus 8 {args}"), words);
    }
}

/// `torch/distributed/pipelining/stage.py`: FSDP's modules reduce gradients with the last micro-batch alone, and hold
/// whole ones until then. Without a pipeline torchtitan reduces each micro-batch's.
#[test]
fn pipelines_of_pytorch_keep_whole_gradients() {
    let gradients = |layout: &str| {
        let sizes = ["--framework", "torchtitan", "--zero", "2", "--global-batch-size", "64"];
        let rest = ["--headroom", "0", "--cluster", "h200", "--format", "json", "--layout", layout];
        let run = planner(&[&["evaluate"], &EIGHT[..], &sizes, &rest].concat());
        run.json()["plans"][0]["memory"]["gradients_bytes"].as_f64().unwrap()
    };
    let parameters = 8_030_261_248.0;
    assert!(gradients("pp2-dp4-mbs1") > 0.4 * 4.0 * parameters);
    assert!(gradients("dp8-mbs1") < 0.3 * 4.0 * parameters);
}
