//! Branch and bound finds what exhaustive search finds.

use cost_models::clusters::preset;
use ir::graph::{Adapters, WeightFormat};
use ir::model::{GraphOptions, Model};
use planner_core::problem::{Choices, Problem};
use planner_core::search::{Go, Outcome, Progress, Request, StopReason, search, with_step};
use planner_core::step::Step;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::random::{Setup, drawn, large_setups, named_schedules, requests, setups};

fn run(setup: &Setup, request: &Request) -> Outcome {
    search(&setup.problem(), request, &mut |_| Go::On)
}

proptest! {
    #![proptest_config(drawn(200))]

    #[test]
    fn the_pruned_search_finds_what_the_exhaustive_one_finds(
        setup in setups(), request in requests(),
    ) {
        let pruned = run(&setup, &request);
        let all = run(&setup, &Request { exhaustive: true, ..request });
        prop_assert_eq!(&pruned.plans, &all.plans);
        prop_assert_eq!(pruned.counts.candidates, all.counts.candidates);
        for Outcome { counts, stop_reason, .. } in [&pruned, &all] {
            prop_assert_eq!(counts.evaluated() + counts.pruned(), counts.candidates);
            prop_assert_eq!(*stop_reason, StopReason::Exhausted);
        }
        prop_assert_eq!(all.counts.pruned(), 0);
        if all.plans.is_empty() {
            prop_assert_eq!(&pruned.closest, &all.closest);
            prop_assert_eq!(&pruned.rejected, &all.rejected);
            prop_assert_eq!(all.closest.is_some(), all.counts.candidates > 0);
        }
    }

    #[test]
    fn a_first_fit_is_found_where_there_is_any(setup in setups(), request in requests()) {
        let first = |progress: Progress| match progress.best {
            Some(_) => Go::Stop(StopReason::FirstFit),
            None => Go::On,
        };
        let any = search(&setup.problem(), &Request { top: 1, ..request }, &mut { first });
        let best = run(&setup, &Request { top: 1, ..request });
        prop_assert_eq!(any.plans.is_empty(), best.plans.is_empty());
    }
}

proptest! {
    #![proptest_config(drawn(60))]

    /// Schedules that are searched only where they are named have bounds too.
    #[test]
    fn so_it_does_for_every_schedule_that_is_named(setup in setups(), request in named_schedules()) {
        let pruned = run(&setup, &request);
        let all = run(&setup, &Request { exhaustive: true, ..request });
        prop_assert_eq!(&pruned.plans, &all.plans);
        prop_assert_eq!(pruned.counts.candidates, all.counts.candidates);
        if all.plans.is_empty() {
            prop_assert_eq!(&pruned.closest, &all.closest);
        }
    }
}

proptest! {
    #![proptest_config(drawn(60))]

    /// MaxText's schedules hold all micro-batches at once, but a single rank follows none of them.
    #[test]
    fn so_it_does_where_no_pipeline_has_1f1b(setup in setups(), request in requests()) {
        let framework = cost_models::frameworks::preset("maxtext").unwrap();
        let setup = Setup { framework, ..setup };
        let pruned = run(&setup, &request);
        prop_assert_eq!(pruned.plans, run(&setup, &Request { exhaustive: true, ..request }).plans);
    }
}

/// torchtitan runs no recompute with a backward in two parts: such layouts are no candidates, whether they are counted
/// or listed.
#[test]
fn candidates_are_those_that_a_framework_runs() {
    let model = json!({
        "architecture": "gpt", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4,
        "num_key_value_heads": 4, "tie_word_embeddings": false, "vocab_size": 1000
    });
    let training = json!({
        "sequence_length": 96, "global_batch_size": 12, "precision": "bf16", "optimizer": "adamw",
        "fp32_gradients": true, "bf16_moments": false, "data_parallel_method": "all-reduce"
    });
    let setup = Setup {
        model,
        cluster: preset("h100").unwrap(),
        framework: cost_models::frameworks::preset("torchtitan").unwrap(),
        training: serde_json::from_value(training).unwrap(),
        num_gpus: 4,
        adapters: None,
    };
    for exhaustive in [false, true] {
        let counts = run(&setup, &Request { exhaustive, ..Request::default() }).counts;
        assert!(counts.candidates > 0);
        assert_eq!(counts.evaluated() + counts.pruned(), counts.candidates, "{counts:?}");
    }
}

/// Ranks that have more of the experts prepare more quantised weights for their products, so that no bound may take
/// all of them for granted: four ranks with two experts each are fastest here.
#[test]
fn quantised_experts_are_spread_as_far_as_is_fastest() {
    let model = json!({
        "architecture": "gpt", "hidden_size": 4096, "moe_intermediate_size": 1536, "num_attention_heads": 32,
        "num_experts": 8, "num_experts_per_tok": 1, "num_hidden_layers": 5, "num_key_value_heads": 8,
        "tie_word_embeddings": false, "vocab_size": 1000,
    });
    let model = Model::from_json(&model.to_string(), "model").unwrap();
    let adapters = Adapters {
        rank: 1,
        alpha: 16,
        targets: vec!["query".to_owned()],
        base_weights: WeightFormat::Int8,
    };
    let graph = model.training_graph(GraphOptions::default(), Some(&adapters)).unwrap();
    let cluster = preset("gb200-nvl72").unwrap();
    let framework = cost_models::frameworks::preset("ideal").unwrap();
    let precision = Some(ir::cluster::Precision::Fp32);
    let choices = Choices {
        sequence_length: Some(96),
        global_batch_size: Some(2),
        precision,
        ..Choices::default()
    };
    let training = choices.resolve(&model, true, &cluster, 4);
    let problem = Problem::new(graph, training, &cluster, framework, 4).unwrap();
    let best = |exhaustive| {
        let request = Request { top: 1, exhaustive, ..Request::default() };
        search(&problem, &request, &mut |_| Go::On).plans
    };
    let all = best(true);
    assert_eq!(all[0].layout.expert_parallel, 4);
    assert_eq!(best(false), all);
}

/// Whether tests that take long are wanted.
fn is_slow_wanted() -> bool {
    std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1")
}

/// The best plan is the first of the best three hundred, and each of these takes as long as it takes alone.
fn check_best_of_many(problem: &Problem) -> Result<(), TestCaseError> {
    let find = |top| search(problem, &Request { top, ..Request::default() }, &mut |_| Go::On);
    let (one, many) = (find(1), find(300));
    prop_assert_eq!(one.plans.first(), many.plans.first());
    prop_assert_eq!(&one.closest, &many.closest);
    prop_assert!(many.plans.is_sorted_by_key(|plan| plan.evaluation.step_time));
    for plan in &many.plans {
        let alone =
            with_step(problem, plan.layout, &plan.stage_ends, |step: &Step<'_>| step.evaluate());
        prop_assert_eq!(Ok(plan.evaluation), alone);
    }
    Ok(())
}

#[test]
fn the_best_plan_is_the_first_of_many() {
    if !is_slow_wanted() {
        return;
    }
    let mut runner = TestRunner::new(drawn(100));
    runner.run(&large_setups(), |setup| check_best_of_many(&setup.problem())).unwrap();
}

#[test]
fn so_it_is_of_every_model_that_ships() {
    if !is_slow_wanted() {
        return;
    }
    for entry in std::fs::read_dir("../../models").unwrap() {
        let path = entry.unwrap().path();
        let config = if path.is_dir() { path.join("config.json") } else { path.clone() };
        let Ok(text) = std::fs::read_to_string(config) else { continue };
        let Ok(model) = Model::from_json(&text, "model") else { continue };
        let graph = model.training_graph(GraphOptions::default(), None).unwrap();
        let clusters = [
            ("h100", 64),
            ("a100", 256),
            ("gb200-nvl72", 72),
            ("h800", 512),
            ("mi300x", 1024),
            ("b200", 16),
        ];
        for (name, num_gpus) in clusters {
            let cluster = preset(name).unwrap();
            let has_sequence = graph.has_sequence();
            let framework = cost_models::frameworks::preset("ideal").unwrap();
            let training = Choices::default().resolve(&model, has_sequence, &cluster, num_gpus);
            let problem =
                Problem::new(graph.clone(), training, &cluster, framework, num_gpus).unwrap();
            check_best_of_many(&problem)
                .unwrap_or_else(|error| panic!("{path:?} on {name}: {error}"));
        }
    }
}
