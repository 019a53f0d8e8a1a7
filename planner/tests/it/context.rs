//! Context parallelism: a ring, or heads exchanged for positions.

use serde_json::Value;

use crate::bad_input::Workplace;
use crate::cli::{evaluated, planner};

#[test]
fn both_kinds_are_planned_kept_and_explained() {
    let place = Workplace::new();
    let rest = "--schedule 1f1b --zero 1 --recompute none --seq-len 32768 --headroom 2";
    let evaluate =
        |layout: &str| evaluated(&format!("models/llama-3.1-8b --gpus 8 --layout {layout} {rest}"));
    let [ring, exchanged, best] = ["cp8-ring-mbs1", "cp8-a2a-mbs1", "cp8-mbs1"].map(evaluate);
    assert_eq!(ring["layout"]["context_parallel_kind"], "ring");
    assert_eq!(exchanged["layout"]["context_parallel_kind"], "all_to_all");
    let time = |plan: &Value| plan["step_time_seconds"].as_f64().unwrap();
    // A hundredth is given up for what is simpler.
    assert!(time(&best) <= 1.01 * time(&ring).min(time(&exchanged)));
    // Attention hides a ring, but nothing hides an exchange; what it puts out is kept twice.
    let part = |plan: &Value, group: &str, name: &str| plan[group][name].as_f64().unwrap();
    let waits = |plan: &Value| part(plan, "breakdown", "context_parallel_seconds");
    assert!(waits(&exchanged) > 0.0);
    let kept = |plan: &Value| part(plan, "memory", "activations_bytes");
    let twice = 32.0 * 2.0 * 4096.0 * 32_768.0 / 8.0;
    assert!((kept(&exchanged) - kept(&ring) - twice).abs() < 1.0, "{ring} {exchanged}");

    let plan = place.path("plan.json");
    let args = ["evaluate", "models/llama-3.1-8b", "--gpus", "8", "-q", "-o", &plan];
    let args = [&args[..], &["--layout", "cp4", "--context-parallel-kind", "all_to_all"]].concat();
    let run = planner(&args);
    assert!(run.stdout.contains(" tp1-cp4-a2a-pp1-dp2 "), "{run:?}");
    let explained = planner(&["explain", &plan]).stdout;
    for words in ["cp4-a2a", "attention.core (all-to-all)", "context parallelism, exposed"] {
        assert!(explained.contains(words), "no `{words}` in {explained}");
    }
    assert_eq!(planner(&["simulate", &plan]).code, Some(0));

    // A plan of before had no choice.
    let mut old: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    old["layout"].as_object_mut().unwrap().remove("context_parallel_kind");
    for runner_up in old["runners_up"].as_array_mut().unwrap() {
        runner_up["layout"].as_object_mut().unwrap().remove("context_parallel_kind");
    }
    let old = place.write("old.json", old.to_string());
    let explained = planner(&["explain", &old]).stdout;
    assert!(explained.contains("tp1-cp4-pp1-dp2"), "{explained}");
}

#[test]
fn exchanges_of_heads_that_cannot_be() {
    let place = Workplace::new();
    for (args, words) in [
        (
            "--layout cp1-a2a",
            &["all_to_all", "`context_parallel` of at least 2", "leave it out"][..],
        ),
        ("--layout cp8-a2a", &["4 key-value heads", "8", "hint: 4 divides them"]),
        ("--layout tp2-cp4-a2a", &["4 key-value heads", "`tensor_parallel` x `context_parallel`"]),
        (
            "--layout cp2-a2a --context-parallel-kind ring",
            &["`a2a` of `--layout`", "`--context-parallel-kind ring`"],
        ),
        ("--layout cp2-heads", &["`heads`", "a2a"]),
        ("--layout cp2 --context-parallel-kind heads", &["heads", "all_to_all"]),
    ] {
        place.fails(&format!("evaluate {{}}/model.json --gpus 8 {args}"), words);
    }
}

/// PyTorch's and Megatron's rings know no sliding window, but heads are exchanged with one.
#[test]
fn a_degree_takes_the_kind_that_runs() {
    let args = ["evaluate", "models/olmo-3-7b", "--gpus", "16", "--framework", "megatron-core"];
    let rest = ["--seq-len", "65536", "--layout", "cp2-dp8"];
    let open = planner(&[&args[..], &rest].concat()).stdout;
    assert!(open.contains("cp2-a2a") && !open.contains("cannot run this"), "{open}");
    let named = planner(&[&args[..], &rest, &["--context-parallel-kind", "ring"]].concat());
    assert!(named.stdout.contains("cannot run this"), "{named:?}");
}

/// An answer's layout can be given back as it is, but not cut off.
#[test]
fn a_layout_of_an_answer_is_given_back() {
    let job = "models/llama-3.1-8b --gpus 8 --headroom 0 --cluster h200";
    let plan = evaluated(&format!("{job} --layout dp8-mbs1 --zero 0"));
    let layout = plan["layout"].to_string();
    let again = evaluated(&format!("{job} --layout {layout}"));
    assert_eq!(plan, again);
    let cut = &layout[..layout.len() - 1];
    let run = planner(&["evaluate", "models/llama-3.1-8b", "--gpus", "8", "--layout", cut]);
    assert_eq!(run.code, Some(2), "{run:?}");
}
