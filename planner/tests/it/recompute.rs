//! Recompute of some layers, and of some modules.

use ir::framework::{RecomputeEnd, SelectiveRecompute};
use ir::graph::Recompute;
use ir::layout::{Layout, LayoutSpec, PartialLayout};
use ir::units::Bytes;
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, Request, simulated};
use proptest::prelude::*;
use serde_json::Value;

use crate::bad_input::Workplace;
use crate::checks::{checked_plans, plans};
use crate::cli::planner;
use crate::random::{Setup, drawn, named_schedules, requests, setups};

/// The same layout and stages under another policy.
fn under(problem: &Problem, found: &EvaluatedPlan, recompute: Recompute) -> EvaluatedPlan {
    let spec = LayoutSpec { recompute, ..*found.layout };
    let layout = Layout::new(spec, &problem.limits).unwrap();
    simulated(problem, layout, &found.stage_ends).0
}

fn with_recompute(request: &Request, recompute: Recompute) -> Request {
    let fixed = PartialLayout { recompute: recompute.into(), ..request.fixed };
    Request { fixed, ..*request }
}

/// The setup's problem, where selective recompute is of these modules.
fn recomputing(setup: &Setup, recompute: Recompute) -> Problem {
    let plain = setup.problem();
    let graph = plain.graph.recomputing(recompute.modules().unwrap()).unwrap();
    let framework = setup.framework.clone();
    Problem::new(graph, setup.training, &setup.cluster, framework, setup.num_gpus).unwrap()
}

/// Whether one takes no longer than another that does more: but for three hundredths, as where messages and transfers
/// wait for each other, passes that take longer may let them meet less (Graham 1969, *Bounds on Multiprocessing
/// Timing Anomalies*).
fn is_no_longer(one: &EvaluatedPlan, other: &EvaluatedPlan) -> bool {
    one.evaluation.step_time.get() <= 1.03 * other.evaluation.step_time.get()
}

proptest! {
    #![proptest_config(drawn(60))]

    #[test]
    fn bounds_hold_where_some_layers_are_computed_again(
        setup in setups(), (request, named) in (requests(), named_schedules()), count in 1u32..4,
    ) {
        let problem = setup.problem();
        for request in [request, named] {
            checked_plans(&problem, &with_recompute(&request, Recompute::FirstLayers(count)))?;
        }
    }

    /// One layer less does not fit, and takes no longer.
    #[test]
    fn the_fewest_layers_that_fit_are_found(
        setup in setups(), (request, named) in (requests(), named_schedules()),
    ) {
        let problem = setup.problem();
        for request in [request, named] {
            let request = with_recompute(&request, Recompute::Full);
            let request = Request { min_recompute: true, ..request };
            for found in checked_plans(&problem, &request)? {
                let fewer = match found.layout.recompute {
                    Recompute::None => continue,
                    Recompute::FirstLayers(1) => Recompute::None,
                    Recompute::FirstLayers(count) => Recompute::FirstLayers(count - 1),
                    other => panic!("{other} is not of some layers"),
                };
                let fewer = under(&problem, &found, fewer);
                prop_assert!(fewer.evaluation.memory.total() > problem.hardware.memory);
                prop_assert!(is_no_longer(&fewer, &found), "{found:?}");
            }
        }
    }

    /// Between no layers and all, time rises and memory falls; all of them are full recompute.
    #[test]
    fn some_layers_lie_between_none_and_all(setup in setups(), request in requests()) {
        let problem = setup.problem();
        for found in plans(&problem, &with_recompute(&request, Recompute::None)) {
            let most = problem.graph.num_blocks() as u32;
            let counts = (1..=most).map(Recompute::FirstLayers);
            let all: Vec<EvaluatedPlan> = std::iter::once(Recompute::None)
                .chain(counts)
                .map(|policy| under(&problem, &found, policy))
                .collect();
            let full = under(&problem, &found, Recompute::Full).evaluation;
            prop_assert_eq!(all.last().unwrap().evaluation, full);
            prop_assert!(all.windows(2).all(|it| is_no_longer(&it[0], &it[1])), "{all:?}");
            let memory: Vec<_> = all.iter().map(|it| it.evaluation.memory.total()).collect();
            prop_assert!(memory.is_sorted_by(|a, b| a >= b), "{memory:?}");
        }
    }

    /// What selective recompute is of by itself, where it is not torchtitan's, is norms and activation functions.
    #[test]
    fn modules_are_planned_as_what_they_consist_of(setup in setups(), request in requests()) {
        let mut setup = Setup { framework: setup.framework.clone().ideal(), ..setup };
        setup.framework.selective_recompute = SelectiveRecompute::Cheap;
        // A layer that is left at the last tensor that backward takes may take less than a module to its end.
        setup.framework.recompute_end = RecomputeEnd::Layer;
        let plain = setup.problem();
        let has_experts = !plain.limits.experts.is_empty();
        let all = if has_experts { "norms,expert_activations" } else { "norms,activations" };
        let modules: Recompute = all.parse().unwrap();
        let problem = recomputing(&setup, modules);
        let chosen = checked_plans(&problem, &with_recompute(&request, modules))?;
        let selective = plans(&plain, &with_recompute(&request, Recompute::Selective));
        prop_assert_eq!(chosen.len(), selective.len());
        for (chosen, selective) in chosen.iter().zip(&selective) {
            prop_assert_eq!(&chosen.evaluation, &selective.evaluation);
        }
        // Each module is somewhere between nothing and all.
        let module = if has_experts { "experts" } else { "mlp" };
        let module: Recompute = module.parse().unwrap();
        let problem = recomputing(&setup, module);
        for found in plans(&problem, &with_recompute(&request, module)) {
            let none = under(&problem, &found, Recompute::None).evaluation;
            let full = under(&problem, &found, Recompute::Full).evaluation;
            let own = found.evaluation;
            let all = [none, own, full];
            // Of the step's time this holds but for anomalies as above, which exchanges over slow links make large.
            let times = all.map(|it| it.breakdown.recompute_seconds);
            prop_assert!(times.is_sorted(), "{times:?} {:?}", found.layout);
            // Without sequence parallelism a module's output, which is kept, is whole on each tensor-parallel rank, and
            // what is dropped is a part. Products of frozen weights keep no inputs, but a module's are kept.
            let is_whole = found.layout.tensor_parallel > 1 && !found.layout.sequence_parallel;
            if is_whole || setup.adapters.is_some() {
                continue;
            }
            // Of very few layers, what is computed again takes more than what is dropped of the others saves.
            let memory = all.map(|it| (it.memory.total(), it.memory.recompute_bytes));
            let is_less = |a: &(Bytes, Bytes), b: &(Bytes, Bytes)| {
                (a.0 + b.1).as_f64() * 1.02 >= b.0.as_f64()
            };
            prop_assert!(memory.is_sorted_by(is_less), "{:?} {:?}", all.map(|it| it.memory), found.layout);
        }
    }
}

const EIGHT: [&str; 8] = [
    "models/llama-3.1-8b",
    "--gpus",
    "8",
    "--quiet",
    "--layout",
    "pp4-mbs1-zero1",
    "--schedule",
    "1f1b",
];

#[test]
fn some_layers_are_planned_kept_and_explained() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let evaluate = |more: &[&str]| planner(&[&["evaluate"], &EIGHT[..], more].concat());
    let run = evaluate(&["--recompute", "full", "--recompute-layers", "3", "-o", &plan]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains(" full:3 "), "{}", run.stdout);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    assert_eq!(written["layout"]["recompute"], "full:3");
    let explained = planner(&["explain", &plan]);
    let words = "recompute full:3 (the first 3 layers of each stage, whole)";
    assert!(explained.stdout.contains(words), "{explained:?}");
    assert_eq!(planner(&["simulate", &plan]).code, Some(0));

    // One word says the same; so do Megatron's.
    let json =
        |more: &[&str]| evaluate(&[&["--format", "json"], more].concat()).json()["plans"].clone();
    let three = json(&["--recompute", "full:3"]);
    assert_eq!(json(&["--recompute-num-layers", "3"]), three);
    let ours = json(&["--recompute", "separate_norms,activations"]);
    assert_eq!(ours[0]["layout"]["recompute"], "separate_norms+activations");
    assert_eq!(json(&["--recompute-modules", "layernorm+activations"]), ours);
    let peak = |plans: &Value| plans[0]["peak_memory_bytes"].as_u64().unwrap();
    assert!(peak(&three) < peak(&json(&["--recompute", "none"])));

    let run = evaluate(&["--recompute", "core_attn,mlp", "-o", &plan]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let explained = planner(&["explain", &plan]);
    let words =
        "recompute attention+feed_forward (attention itself, dense feed-forward of every layer)";
    assert!(explained.stdout.contains(words), "{explained:?}");

    // A long sequence needs some layers, and no more.
    let fewest = json(&["--recompute-layers", "fewest", "--seq-len", "32768", "--tp", "2"]);
    let policy = fewest[0]["layout"]["recompute"].as_str().unwrap();
    assert!(policy.starts_with("full:"), "{policy}");
    assert_eq!(fewest[0]["fits"], true);
}

#[test]
fn recompute_that_cannot_be() {
    let place = Workplace::new();
    for (args, words) in [
        (
            "--recompute some",
            &["`some`", "hint: none, selective, full", "separate_norms (layernorm)"][..],
        ),
        ("--recompute full:0", &["full:0", "hint: `none`"]),
        ("--recompute norms,,mlp", &["``"]),
        (
            "--recompute moe",
            &["no `experts`", "hint: it has attention, norms, activations, feed_forward"],
        ),
        ("--recompute-layers 0", &["at least 1", "fewest"]),
        ("--recompute selective --recompute-layers 2", &["selective", "hint: `--recompute full`"]),
    ] {
        place.fails(&format!("search {{}}/model.json --gpus 8 {args}"), words);
    }
}

/// torchtitan's own selective recompute runs about half of a layer's products again, Megatron's none.
#[test]
fn selective_recompute_is_that_of_the_framework() {
    let recompute_seconds = |framework: &str, recompute: &str| {
        let args = ["evaluate", "llama-3.1-8b", "--gpus", "8", "--layout", "tp1-pp1-dp8"];
        let others = ["--framework", framework, "--recompute", recompute, "--format", "json"];
        let found = planner(&[&args[..], &others, &["--micro-batch-size", "1"]].concat()).json();
        found["plans"][0]["breakdown"]["recompute_seconds"].as_f64().unwrap()
    };
    let titan = ["selective", "full"].map(|policy| recompute_seconds("torchtitan", policy));
    assert!((0.3..0.7).contains(&(titan[0] / titan[1])), "{titan:?}");
    let megatron = ["selective", "full"].map(|policy| recompute_seconds("megatron-core", policy));
    assert!(megatron[0] / megatron[1] < 0.2, "{megatron:?}");
}
