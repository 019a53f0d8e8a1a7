//! Answers agree with each other: what one command says of a layout, all say.

use std::fs;

use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::{Choice, Layout, LayoutSpec, Offload, PartialLayout, ZeroStage};
use ir::schedule::ScheduleKind;
use planner_core::problem::{Problem, StageRule};
use planner_core::search::{
    EvaluatedPlan, Go, LOOKED_AT, RESOLUTION, Request, chosen, evaluate, search,
};
use planner_tools::interchange::named;
use proptest::prelude::*;
use serde_json::Value;

use crate::bad_input::Workplace;
use crate::cli::planner;
use crate::random::{Setup, drawn, large_setups, requests, setups};

/// The problem as the command poses it.
fn posed(setup: &Setup) -> Problem {
    let problem = setup.problem();
    let headroom = problem.usual_headroom();
    problem.with_headroom(headroom)
}

fn best(problem: &Problem) -> Option<EvaluatedPlan> {
    let request = Request { find_closest: false, ..Request::default() };
    search(problem, &request, &mut |_| Go::On).plans.into_iter().next()
}

/// What is named of a layout that a search does not choose by itself: over how many ranks states are sharded.
fn without_what_is_not_searched(fixed: &PartialLayout) -> PartialLayout {
    PartialLayout { zero_shard: Choice::Any, offload: Choice::Any, ..*fixed }
}

/// Every layout that is named and runs, and fits with the headroom in force, is one that the search knows of: what it
/// finds is slower by no more than what cannot be told apart.
fn check_search_knows(setup: &Setup, request: &Request) -> Result<(), TestCaseError> {
    let problem = posed(setup);
    let fixed = without_what_is_not_searched(&request.fixed);
    let request = Request { fixed, top: 1, find_closest: false, ..Request::default() };
    let (outcome, left) = evaluate(&problem, &request, &mut |_| Go::On);
    let Some(found) = outcome.plans.into_iter().next().filter(|_| left.is_none()) else {
        return Ok(());
    };
    let named = named(&found.layout, problem.facts);
    prop_assert_eq!(problem.unsupported(&named), Vec::<String>::new(), "{}", found.layout);
    let any = best(&problem);
    prop_assert!(any.is_some(), "no layout is found, but {} runs and fits", found.layout);
    let (any, time) = (any.unwrap(), found.evaluation.step_time.get());
    let other = any.evaluation.step_time.get();
    prop_assert!(
        other <= time * (1.0 + RESOLUTION),
        "{} takes {time}, {other} is found: {}\n{:?}",
        found.layout,
        any.layout,
        *found.layout
    );
    Ok(())
}

proptest! {
    #![proptest_config(drawn(100))]

    #[test]
    fn what_is_evaluated_a_search_knows(setup in setups(), request in requests()) {
        check_search_knows(&setup, &request)?;
    }

    /// Likelihoods are of one sample, and the first plan is no hopeless one.
    #[test]
    fn likelihoods_are_of_one_sample(setup in setups(), request in requests()) {
        let problem = posed(&setup);
        let request = Request { top: LOOKED_AT, ..request };
        let plans = search(&problem, &request, &mut |_| Go::On).plans;
        let shown = chosen(&problem, &plans, 5);
        let sum: f64 = shown.iter().map(|it| it.likelihood).sum();
        prop_assert!(sum <= 1.0 + 1e-9, "{sum}");
        let most = shown.iter().map(|it| it.likelihood).fold(0.0, f64::max);
        prop_assert!(shown.first().is_none_or(|it| it.likelihood >= most / 3.0), "{shown:?}");
        // The first does not depend on how many are shown.
        let alone = chosen(&problem, &plans, 1);
        prop_assert_eq!(alone.first().map(|it| &it.found), shown.first().map(|it| &it.found));
    }

    /// What is shown of a plan is what its evaluation shows: time, stages and memory.
    #[test]
    fn what_is_found_is_evaluated_alike(setup in setups(), request in requests()) {
        let problem = posed(&setup);
        let request = Request { top: 4, find_closest: false, ..request };
        for found in search(&problem, &request, &mut |_| Go::On).plans {
            let request = Request { fixed: PartialLayout::from(&*found.layout), top: 1, ..request };
            let (outcome, left) = evaluate(&problem, &request, &mut |_| Go::On);
            prop_assert_eq!(left, None);
            prop_assert_eq!(outcome.plans.first(), Some(&found));
        }
    }

    /// Where no layout is possible, none is among all that there are by the framework's own rules.
    #[test]
    fn no_layout_is_possible_only_where_there_is_none(setup in setups(), request in requests()) {
        let problem = setup.problem();
        let fixed = without_what_is_not_searched(&request.fixed);
        let request = Request { fixed, find_closest: false, ..Request::default() };
        let outcome = search(&problem, &request, &mut |_| Go::On);
        if outcome.counts.candidates == 0 {
            prop_assert_eq!(any_layout(&problem, &fixed), None);
        }
    }
}

proptest! {
    #![proptest_config(drawn(10))]

    #[test]
    fn so_does_a_search_of_large_models(setup in large_setups(), request in requests()) {
        check_search_knows(&setup, &request)?;
    }
}

/// The first layout that is as named and that the framework runs, of all that can be written down; the plainest of what
/// does not change whether there is one.
fn any_layout(problem: &Problem, fixed: &PartialLayout) -> Option<LayoutSpec> {
    let gpus = problem.limits.num_gpus;
    let divisors = |number: u32, named: Choice<u32>| {
        (1..=number).filter(move |it| number.is_multiple_of(*it) && named.allows(*it))
    };
    let degrees = divisors(gpus, fixed.tensor_parallel).flat_map(move |tensor| {
        divisors(gpus / tensor, fixed.context_parallel).flat_map(move |context| {
            let rest = gpus / tensor / context;
            divisors(rest, fixed.pipeline_parallel)
                .map(move |pipeline| [tensor, context, pipeline, rest / pipeline])
        })
    });
    for [tensor, context, pipeline, data] in degrees {
        let batch = problem.training.global_batch_size as u32;
        let sizes = divisors(batch, fixed.micro_batch_size);
        for size in sizes.filter(|size| batch.is_multiple_of(data * size)) {
            let base = LayoutSpec {
                tensor_parallel: tensor,
                context_parallel: context,
                expert_tensor_parallel: tensor,
                pipeline_parallel: pipeline,
                data_parallel: data,
                micro_batch_size: size,
                num_micro_batches: batch / data / size,
                zero_shard: context * data,
                ..LayoutSpec::ONE_RANK
            };
            let mut layouts = variants(problem, fixed, base);
            let found = layouts.find(|spec| fixed.allows(spec) && runs(problem, spec));
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// A layout with all that decides whether it can be, as it is named.
fn variants(
    problem: &Problem,
    fixed: &PartialLayout,
    base: LayoutSpec,
) -> impl Iterator<Item = LayoutSpec> {
    let most = problem.limits.num_blocks as u32 / base.pipeline_parallel;
    let tensor = base.tensor_parallel;
    let (degrees, cuts) = if problem.limits.experts.is_empty() {
        (1..=1, tensor..=tensor)
    } else {
        (1..=base.ranks_per_stage(), 1..=tensor)
    };
    // Those layouts with each of these values of a field.
    macro_rules! each {
        ($field:ident of $values:expr, $layouts:expr) => {{
            let values = $values.into_iter().filter(move |it| fixed.$field.allows(*it));
            $layouts.flat_map(move |base: LayoutSpec| {
                values.clone().map(move |$field| LayoutSpec { $field, ..base })
            })
        }};
    }
    let layouts =
        std::iter::once(base).filter(move |base| fixed.data_parallel.allows(base.data_parallel));
    let layouts = each!(sequence_parallel of [false, true], layouts);
    let layouts = each!(context_parallel_kind of ContextParallelKind::ALL, layouts);
    let layouts = each!(expert_parallel of degrees, layouts);
    let layouts = each!(expert_tensor_parallel of cuts, layouts);
    let layouts = each!(zero_stage of ZeroStage::ALL, layouts);
    let layouts = each!(schedule of ScheduleKind::ALL, layouts);
    let layouts = each!(virtual_stages of 1..=most.max(1), layouts);
    each!(recompute of Recompute::ALL, layouts)
}

/// Whether a layout is one of the problem's, and the framework runs it.
fn runs(problem: &Problem, spec: &LayoutSpec) -> bool {
    let rule = problem.stage_rule(spec.pipeline_parallel, spec.virtual_stages);
    let usual = spec.schedule.default_virtual_stages();
    let is_staged = spec.schedule.is_interleaved() || spec.virtual_stages == usual;
    let is_searched = spec.offload == Offload::NONE;
    is_staged
        && is_searched
        && (spec.pipeline_parallel == 1 || rule != StageRule::Impossible)
        && Layout::new(*spec, &problem.limits)
            .is_ok_and(|layout| problem.training.replication().check_layout(&layout).is_ok())
        && problem.unsupported(&named(spec, problem.facts)).is_empty()
}

/// The same plan in every command: its time to the digit, its memory, and its runners-up in the report.
#[test]
fn all_commands_show_the_same_figures() {
    let place = Workplace::new();
    let (plan, page) = (place.path("plan.json"), place.path("report.html"));
    let (plan, page) = (plan.as_str(), page.as_str());
    for args in [
        "llama-3.1-8b --gpus 8 --framework fsdp2",
        "llama-3.1-8b --gpus 24 --pp 3",
        "gpt2 --gpus 16",
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let last = ["--quiet", "--format", "json", "-o", plan];
        let found = planner(&[&["search"], &words[..], &last].concat()).json();
        let plans = found["plans"].as_array().unwrap();
        let saved: Value = serde_json::from_str(&fs::read_to_string(plan).unwrap()).unwrap();
        let first = &plans[0];
        for figure in ["step_time_seconds", "peak_memory_bytes", "mfu"] {
            assert_eq!(first[figure], saved["prediction"][figure], "{args}: {figure}");
        }
        let explained = planner(&["explain", plan, "--format", "json"]).json();
        assert_eq!(explained["plan"]["prediction"], saved["prediction"], "{args}");
        let compared = planner(&["compare", plan, plan, "--format", "json"]).json();
        assert_eq!(compared["a"]["step_time_seconds"], first["step_time_seconds"], "{args}");
        assert_eq!(compared["b"]["peak_memory_bytes"], first["peak_memory_bytes"], "{args}");
        assert_eq!(planner(&["report", plan, "-o", page]).code, Some(0));
        let report = fs::read_to_string(page).unwrap();
        for plan in plans {
            let shown = format!("<td>{:.3}</td>", plan["step_time_seconds"].as_f64().unwrap());
            assert!(report.contains(&shown), "{args}: {shown} is not in the report");
            let gib = plan["peak_memory_bytes"].as_f64().unwrap() / 2f64.powi(30);
            assert!(report.contains(&format!("<td>{gib:.1}</td>")), "{args}: {gib}");
        }
    }
}
