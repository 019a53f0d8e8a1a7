//! Questions in addition to the best plan: each answer against what a search of its own says.

use ir::schedule::ScheduleKind;
use planner_core::answers::{Difference, TermDifference, WhyNot, front, least_memory, why_not};
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, Go, Request, search};
use proptest::prelude::*;
use serde_json::Value;

use crate::bad_input::Workplace;
use crate::cli::{planner, run};
use crate::random::{drawn, requests, setups};

const SMALL: [&str; 4] = ["models/llama-3.1-8b", "--gpus", "8", "--quiet"];

fn best(problem: &Problem, request: &Request) -> Option<EvaluatedPlan> {
    let request = Request { top: 1, find_closest: false, ..*request };
    search(problem, &request, &mut |_| Go::On).plans.into_iter().next()
}

fn json(args: &[&str]) -> Value {
    let run = planner(&[args, &["--format", "json"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

proptest! {
    #![proptest_config(drawn(60))]

    /// Terms of a difference add up to it, either way round, and so do lines of memory.
    #[test]
    fn a_difference_adds_up(setup in setups(), request in requests(), other in requests()) {
        let problem = setup.problem();
        let (Some(one), Some(other)) = (best(&problem, &request), best(&problem, &other)) else {
            return Ok(());
        };
        let there = Difference::of((&problem, &one), (&problem, &other));
        let back = Difference::of((&problem, &other), (&problem, &one));
        let sum: f64 = there.terms.iter().map(TermDifference::more).sum();
        let step = one.evaluation.step_time.get();
        prop_assert!((sum - there.step_time_seconds).abs() < 1e-6 * step, "{sum} {there:?}");
        prop_assert!((there.step_time_seconds + back.step_time_seconds).abs() < 1e-9 * step);
        let both = there.likelihood_first_is_faster + back.likelihood_first_is_faster;
        prop_assert!((both - 1.0).abs() < 1e-6);
        let bytes = |which: usize| there.memory.iter().map(|line| line.bytes[which].get()).sum::<u64>();
        prop_assert_eq!(bytes(0), one.evaluation.memory.total().get());
        prop_assert_eq!(bytes(1), other.evaluation.memory.total().get());
    }

    /// What a plan does without is no faster than the best that was searched for it alone, and the best of all has
    /// no reason against itself.
    #[test]
    fn what_is_not_chosen_is_what_a_search_of_its_own_finds(setup in setups(), request in requests(), named in requests()) {
        let problem = setup.problem();
        let Some(plan) = best(&problem, &request) else { return Ok(()) };
        let Some(asked) = request.fixed.and(&named.fixed) else { return Ok(()) };
        let own = best(&problem, &Request { fixed: asked, ..request });
        match why_not((&problem, &plan), &problem, &request, &asked, &mut || Go::On).0 {
            WhyNot::Slower { found, difference } | WhyNot::AsFast { found, difference } => {
                prop_assert_eq!(Some(&*found), own.as_ref());
                // Stages that are cut for what they hold may happen to be cut better, and some of what can be named
                // is not searched.
                let is_cut_alike = found.stage_ends == plan.stage_ends;
                let is_searched = asked.context_parallel_kind == request.fixed.context_parallel_kind
                    && asked.zero_shard == request.fixed.zero_shard
                    && asked.schedule.one().is_none_or(ScheduleKind::is_searched);
                let is_law = is_cut_alike && is_searched;
                prop_assert!(difference.step_time_seconds >= 0.0 || !is_law, "{difference:?}");
            }
            WhyNot::Chosen => prop_assert_eq!(own.map(|it| it.layout), Some(plan.layout)),
            WhyNot::TooLarge { missing_bytes, .. } => {
                prop_assert!(own.is_none() && missing_bytes.get() > 0);
            }
            WhyNot::Lacking { reasons } => prop_assert!(!reasons.is_empty() && own.is_none()),
            WhyNot::Impossible { .. } => prop_assert!(own.is_none()),
            // Here no headroom is in force.
            WhyNot::LessHeadroom { .. } => prop_assert!(false, "all memory may be used"),
            WhyNot::Unknown => prop_assert!(false, "nothing stopped it"),
        }
    }

    /// Of plans on the front none is better than another in all three; the fastest of all is among them.
    #[test]
    fn no_plan_of_a_front_is_better_in_all(setup in setups()) {
        let problem = setup.problem();
        let request = Request::default();
        let points = front(&problem, &request, &mut || Go::On).unwrap();
        let fastest = best(&problem, &request).map(|it| it.evaluation.step_time.get());
        // On fewer GPUs something may fit where on all nothing does: the batch divides by fewer.
        prop_assert!(fastest.is_none() || !points.is_empty());
        for one in &points {
            for other in &points {
                let worse = one.step_time_seconds > other.step_time_seconds
                    && one.peak_memory_bytes > other.peak_memory_bytes
                    && one.num_gpus > other.num_gpus;
                prop_assert!(!worse, "{one:?} {other:?}");
            }
        }
        if let Some(fastest) = fastest {
            let least = points.iter().map(|it| it.step_time_seconds).fold(f64::INFINITY, f64::min);
            prop_assert!(least <= fastest * (1.0 + 1e-12));
        }
    }

    /// Something fits in the least memory, and nothing in clearly less.
    #[test]
    fn the_least_memory_is_the_least(setup in setups()) {
        let problem = setup.problem();
        let request = Request::default();
        let Some(least) = least_memory(&problem, &request, &mut || Go::On) else {
            prop_assert!(best(&problem, &request).is_none());
            return Ok(());
        };
        let within = |memory_budget| best(&Problem { memory_budget, ..problem.clone() }, &request);
        prop_assert!(within(least).is_some());
        let hundredth = problem.hardware.memory.get() / 50;
        prop_assert!(within(ir::units::Bytes::new(least.get().saturating_sub(hundredth))).is_none());
    }

}

/// The longest sequence fits, and one that is a quarter longer does not.
#[test]
fn the_longest_sequence_is_the_longest() {
    let found =
        json(&[&["search"], &SMALL[..], &["--max-seq-len", "--global-batch-size", "8"]].concat());
    let longest = found["longest_sequence"]["sequence_length"].as_u64().unwrap();
    assert!(longest > 8192, "{longest}");
    let fits = |length: u64| {
        let length = length.to_string();
        let args = ["--seq-len", &length, "--global-batch-size", "8"];
        planner(&[&["search"], &SMALL[..], &args].concat()).code
    };
    assert_eq!(fits(longest), Some(0));
    assert_eq!(fits(longest * 5 / 4 / 1024 * 1024), Some(1));
}

/// 15 sequences of 798,720 tokens fit on 100 GPUs, by five context-parallel ranks: the answer is no shorter, to an
/// eighth.
#[test]
fn the_longest_sequence_has_the_odd_factors_of_the_gpus() {
    let args = ["search", "models/llama-3.1-8b", "--gpus", "100", "--quiet"];
    let length = ["--seq-len", "798720", "--global-batch-size", "15"];
    assert_eq!(planner(&[&args[..], &length].concat()).code, Some(0));
    let found = json(&[&args[..], &["--max-seq-len"]].concat());
    let longest = found["longest_sequence"]["sequence_length"].as_u64().unwrap();
    assert!(longest >= 798_720 * 7 / 8, "{longest}");
}

/// Lengths that cannot be counted on the way to the longest, or are shorter than the documents, end no search.
#[test]
fn the_longest_sequence_is_found_whatever_lengths_are_not_possible() {
    let longest = |args: &[&str]| {
        let found = json(&[&["search"], args, &["--max-seq-len", "--quiet"]].concat());
        found["longest_sequence"]["sequence_length"].as_u64().unwrap()
    };
    let huge = longest(&["models/gpt2", "--gpus", "2048", "--cluster", "b200"]);
    assert!(huge >= 1 << 27, "{huge}");
    let place = Workplace::new();
    let lengths = place.write("lengths.txt", "4096\n");
    let lengths = ["--seq-len", "8192", "--document-lengths", &lengths];
    let documents = longest(&[&["models/llama-3.1-8b", "--gpus", "8"], &lengths[..]].concat());
    assert!(documents >= 8192, "{documents}");
}

#[test]
fn a_cluster_of_one_gpu_a_node_may_need_one() {
    let args = ["models/gpt2", "--gpus", "4", "--cluster", "gh200", "--objective", "gpus"];
    assert_eq!(json(&[&["search", "--quiet"], &args[..]].concat())["num_gpus"], 1);
}

/// Frozen weights in four bits and states on the host leave most of what training in full takes.
#[test]
fn the_fewest_gpus_are_those_of_what_is_trained() {
    for (args, gpus) in [
        ("models/llama-3.1-8b --cluster rtx-4090 --lora-rank 16 --base-weights nf4", 2),
        ("models/llama-3.1-70b --framework deepspeed --offload optimizer --headroom 4", 4),
    ] {
        let search = format!("search {args} --quiet --gpus 16 --objective gpus --format json");
        let found = run(&search).json();
        assert!(found["num_gpus"].as_u64().unwrap() <= gpus, "{args}: {found}");
    }
}

#[test]
fn objectives_are_met() {
    let least =
        json(&["search", "models/llama-3.1-70b", "--gpus", "64", "--objective", "gpus", "--quiet"]);
    let gpus = least["num_gpus"].as_u64().unwrap();
    let fits = |gpus: u64| {
        let gpus = gpus.to_string();
        let batch = ["--global-batch-size", "512"];
        planner(
            &[&["search", "models/llama-3.1-70b", "--quiet", "--gpus", &gpus], &batch[..]].concat(),
        )
        .code
    };
    assert_eq!(fits(gpus), Some(0));
    assert_eq!(fits(gpus - 8), Some(1));
    let run = planner(&[&["search"], &SMALL[..], &["--objective", "cost"]].concat());
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("`--price 2.5`"), "{}", run.stderr);
}

/// Days, money and energy are those of the plan's rate.
#[test]
fn a_run_takes_what_its_steps_take() {
    let more = ["--tokens", "1T", "--price", "2", "--gpu-mtbf", "1000000000"];
    let found = json(&[&["search"], &SMALL[..], &more].concat());
    let (run, plan) = (&found["training_run"], &found["plans"][0]);
    let rate = plan["tokens_per_second_per_gpu"].as_f64().unwrap() * 8.0;
    let days = 1e12 / rate / 86_400.0;
    let [got, cost, energy] =
        ["days", "cost", "megawatt_hours"].map(|name| run[name].as_f64().unwrap());
    assert!((days..days * 1.001).contains(&got), "{got} days, not {days}");
    assert!((cost / (got * 24.0 * 8.0 * 2.0) - 1.0).abs() < 1e-9);
    assert!((energy / (got * 24.0 * 8.0 * 700e-6) - 1.0).abs() < 1e-9);
    let hopeless = ["--tokens", "1T", "--gpu-mtbf", "0.5"];
    let run = planner(&[&["search"], &SMALL[..], &hopeless].concat());
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("--gpu-mtbf"), "{}", run.stderr);
}

/// A plan and a layout compare as two layouts do.
#[test]
fn plans_and_layouts_compare_alike() {
    let place = Workplace::new();
    let plan = &*place.path("plan.json");
    let evaluate =
        ["evaluate", SMALL[0], "--gpus", "8", "--layout", "tp2-dp4", "-o", plan, "--quiet"];
    assert_eq!(planner(&evaluate).code, Some(0));
    let by_plan = json(&["compare", plan, "tp4-dp2"]);
    let by_layouts = json(&["compare", "tp2-dp4", "tp4-dp2", "--model", SMALL[0], "--gpus", "8"]);
    assert_eq!(by_plan["difference"], by_layouts["difference"]);
    let same = json(&["compare", plan, plan]);
    assert_eq!(same["difference"]["step_time_seconds"], 0.0);
    for (args, says) in [
        (&["compare", "tp2", "tp4"][..], "--model"),
        (&["compare", plan, "nonsense"], "neither a plan's file nor a layout"),
        (&["compare", plan, "tp3"], "do not divide"),
        (&["compare", plan, "tp2", "--model", SMALL[0]], "a plan has its own"),
    ] {
        let run = planner(args);
        assert_eq!(run.code, Some(2), "{args:?}");
        assert!(run.stderr.contains(says), "{args:?}: {}", run.stderr);
    }
}

/// Each point of a sweep is what a search says.
#[test]
fn a_sweep_is_searches_side_by_side() {
    let place = Workplace::new();
    let picture = place.path("sweep.svg");
    let path = &*picture;
    let swept = json(&["sweep", SMALL[0], "--over", "gpus=8,16", "-o", path]);
    for (point, gpus) in swept["points"].as_array().unwrap().iter().zip(["8", "16"]) {
        let found = json(&["search", SMALL[0], "--gpus", gpus, "--quiet", "--top", "1"]);
        assert_eq!(point["layout"], found["plans"][0]["layout"]);
        assert_eq!(point["step_time_seconds"], found["plans"][0]["step_time_seconds"]);
    }
    // The value in force, of what a model of experts and documents is asked about.
    let mixture = ["models/qwen3-30b-a3b", "--gpus", "16"];
    let documents = ["--document-lengths", "lognormal:300,1.0", "--packing", "none"];
    for (asked, cluster) in [
        (&mixture[..], "h100"),
        (&[&SMALL[..1], &["--gpus", "16"], &documents].concat(), "h100"),
        (&SMALL[..3], "a100:1,h100:1"),
    ] {
        let asked = if cluster == "h100" {
            asked.to_vec()
        } else {
            [&asked[..1], &["--gpus", "16"]].concat()
        };
        let asked = [&asked[..], &["--cluster", cluster]].concat();
        let found = json(&[&["search", "--quiet", "--top", "1"], &asked[..]].concat());
        let swept = json(&[&["sweep", "--over", "bandwidth=1"], &asked[..]].concat());
        let seconds = "step_time_seconds";
        assert_eq!(swept["points"][0][seconds], found["plans"][0][seconds], "{asked:?}");
    }
    let drawn = std::fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("16 GPUs") && drawn.starts_with("<svg"), "{}", &drawn[..200]);
    for (over, says) in [
        ("gpus=", "such as gpus=8,16,32"),
        ("gpus=8.5", "gpus cannot be 8.5"),
        ("light=1", "must be one of"),
    ] {
        let run = planner(&["sweep", SMALL[0], "--over", over]);
        assert_eq!(run.code, Some(2), "{over}");
        assert!(run.stderr.contains(says), "{over}: {}", run.stderr);
    }
}
