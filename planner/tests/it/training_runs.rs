//! Runs over weeks in which things fail: what the command says of them, and what it refuses.

use ir::layout::{LayoutSpec, ZeroStage};
use planner_core::answers::CheckpointBytes;
use planner_core::search::{Go, Request, search};
use proptest::prelude::*;
use serde_json::Value;

use crate::bad_input::{Workplace, check_error};
use crate::cli::run;
use crate::random::{drawn, setups};

/// A run on 128 GPUs, with 8 replicas of two shards each.
const RUN: &str = "search models/llama-3.1-8b --gpus 128 --global-batch-size 512 --tp 8 --pp 1 --zero-shard 2 --top 1 \
                   --quiet --tokens 1T";

fn training_run(more: &str) -> Value {
    run(&format!("{RUN} --format json {more}")).json()["training_run"].clone()
}

fn is_refused(args: &str, words: &[&str]) {
    check_error(&run(args), &[args], words);
}

fn number(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or_else(|| panic!("no {name} in {run}"))
}

/// What is lost adds up, quantiles are in order, and a seed says all.
#[test]
fn days_add_up() {
    for how in [
        "--on-failure wait",
        "--spares 2 --repair-time 6h",
        "--on-failure shrink --spares 0 --slow-nodes 0.1%,1.5",
        "--on-failure replan --spares 1",
        "--checkpoint-to memory --asynchronous-checkpoints",
    ] {
        let more = format!("--gpu-mtbf 2000 --price 2.5 {how}");
        let run = training_run(&more);
        let lost: f64 =
            run["lost_days"].as_object().unwrap().values().map(|it| it.as_f64().unwrap()).sum();
        let days = number(&run, "days");
        let sum = number(&run, "days_without_failures") + lost;
        assert!((sum / days - 1.0).abs() < 1e-6, "{how}: {run}");
        for (quantiles, mean) in [("days_quantiles", "days"), ("cost_quantiles", "cost")] {
            let [p10, p50, p90] = ["p10", "p50", "p90"].map(|at| number(&run[quantiles], at));
            let mean = number(&run, mean);
            assert!(p10 <= p50 && p50 <= p90 && p10 < mean && mean < p90, "{run}");
        }
        let by_component = run["interruptions_by_component"].as_object().unwrap().values();
        let sum: f64 = by_component.map(|it| it.as_f64().unwrap()).sum();
        assert!((sum / number(&run, "interruptions") - 1.0).abs() < 1e-9, "{run}");
        assert_eq!(training_run(&more), run);
        assert_ne!(training_run(&format!("{more} --seed 1"))["days"], run["days"]);
    }
}

/// A slow node slows all steps down, the more the more often it is; a wider way to the storage helps.
#[test]
fn slow_nodes_cost_and_bandwidth_helps() {
    let goodput = |more: &str| number(&training_run(more), "goodput");
    let plain = goodput("");
    let slow = ["0.01%,1.5", "1%,1.5", "1%,3"].map(|slow| goodput(&format!("--slow-nodes {slow}")));
    assert!(plain > slow[0] && slow[0] > slow[1] && slow[1] > slow[2], "{plain} {slow:?}");
    assert!((goodput("--slow-nodes 50%,1") - plain).abs() < 1e-9);
    let by = ["0.1", "1", "100"].map(|it| goodput(&format!("--storage-bandwidth {it}")));
    assert!(by[0] < by[1] && by[1] < by[2], "{by:?}");
}

/// A file says what fails, how often and whether a node is taken out for it.
#[test]
fn rates_are_read_from_a_file() {
    let place = Workplace::new();
    let rates = place.write(
        "rates.json",
        r#"[{"component": "NIC", "per": "node", "mtbf_hours": 1600},
            {"component": "scheduler", "per": "job", "mtbf_hours": 100, "replaces_node": false}]"#,
    );
    let run = training_run(&format!("--failure-rates {rates}"));
    assert!((number(&run, "hours_between_failures") - 50.0).abs() < 1e-9, "{run}");
    let of = |name| number(&run["interruptions_by_component"], name);
    assert!((of("NIC") / of("scheduler") - 1.0).abs() < 0.1, "{run}");
    for (text, words) in [
        (r#"[{"component": "NIC", "per": "rack", "mtbf_hours": 1}]"#, ["rack", "gpu", "hint: "]),
        (
            r#"[{"component": "NIC", "per": "node", "mtbf_hours": 0}]"#,
            ["NIC", "is 0", "more than 0"],
        ),
        (r#"{"NIC": 3}"#, ["is no list of components", "mtbf_hours", "hint: "]),
    ] {
        let wrong = place.write("wrong.json", text);
        is_refused(&format!("{RUN} --failure-rates {wrong}"), &words);
    }
}

/// A run of some hours is told in hours, and one in which nothing fails has no interruptions.
#[test]
fn short_runs_have_numbers() {
    let place = Workplace::new();
    let rates = place.write("none.json", "[]");
    let short = RUN.replace("1T", "10B");
    let args = format!("{short} --failure-rates {rates} --price 0.001 --watts 1");
    let text = run(&args).stdout;
    assert!(text.contains("no interruptions; a checkpoint of"), "{text}");
    for wrong in ["inf", " 0.0 ", " 0.00 ", "cost 0 ", "most 0 MWh"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
}

/// Each refusal has numbers, and what its hint names works.
#[test]
fn what_cannot_be_is_refused_with_what_works() {
    let behind = "--asynchronous-checkpoints --storage-bandwidth 0.5 --checkpoint-interval 60s";
    for (wrong, words) in [
        ("--spares 17", &["17 spare nodes", "the 16 that train"][..]),
        ("--checkpoint-interval 10ms", &["of 10.00 ms is shorter than a step"]),
        (behind, &["of 60.00 s is shorter than the"]),
        ("--gpu-mtbf 10", &["interrupted every 281 s", "`--restart-time"]),
        ("--gpu-mtbf 16", &["interrupted every 450 s", "`--on-failure shrink`"]),
        ("--gpu-mtbf 500 --spares 0 --repair-time 60d", &["repaired at once", "0 are spare"]),
    ] {
        let run = run(&format!("{RUN} {wrong}"));
        check_error(&run, &[wrong], words);
        let (_, hint) = run.stderr.split_once("hint: ").unwrap();
        let named = hint.split('`').filter(|it| it.starts_with("--") && it.contains(' '));
        assert_ne!(named.clone().count(), 0, "{hint}");
        for works in named {
            let (option, _) = works.split_once(' ').unwrap();
            let others = wrong.split("--").filter(|it| !it.is_empty()).map(|it| format!("--{it}"));
            let others: Vec<String> = others.filter(|it| !it.starts_with(option)).collect();
            training_run(&format!("{} {works}", others.join(" ")));
        }
    }
    for (wrong, word) in [
        ("--storage-bandwidth 0", "above 0"),
        ("--gpu-mtbf 0", "more than 0"),
        ("--slow-nodes 2,1.5", "share of the time up to 1"),
        ("--slow-nodes 5", "`0.1%,1.5`"),
        ("--on-failure pray", "wait, shrink, replan"),
        ("--spares -1", "between 0 and"),
    ] {
        is_refused(&format!("{RUN} {wrong}"), &[word]);
    }
    let one = "search models/llama-3.1-8b --quiet --tokens 1T";
    is_refused(
        &format!("{one} --gpus 8 --checkpoint-to memory"),
        &["the only node", "hint: `--checkpoint-to storage`"],
    );
    is_refused(
        &format!("{one} --gpus 16 --tp 8 --pp 1 --zero 1 --on-failure shrink"),
        &["no replica is left", "hint: `--tp 8 --cp 1 --ep 1 --pp 1 --zero-shard 1`"],
    );
    is_refused("search models/llama-3.1-8b --quiet --gpus 8 --spares 1", &["--tokens"]);
}

/// Replicas that go on write checkpoints whatever fails meanwhile: failures that come more often than checkpoints lose
/// no more than one interval where no replica is left.
#[test]
fn checkpoints_are_written_through_failures_of_replicas() {
    let run = training_run("--gpu-mtbf 300 --on-failure shrink --checkpoint-interval 3h --zero 1");
    let lost = number(&run["lost_days"], "lost_work");
    let days = number(&run, "days");
    assert!(lost < 0.05 * days, "{run}");
}

/// Ranks of a stage are neighbours: tensor-parallel ranks first, then replicas.
#[test]
fn replicas_fail_apart_where_they_share_no_node() {
    let spec = |tp, pp, dp, zero: u8, zero_shard| LayoutSpec {
        tensor_parallel: tp,
        pipeline_parallel: pp,
        data_parallel: dp,
        zero_stage: ZeroStage::try_from(zero).unwrap(),
        zero_shard,
        ..LayoutSpec::ONE_RANK
    };
    for (spec, groups) in [
        (spec(8, 16, 128, 1, 128), 1),
        (spec(8, 16, 128, 1, 16), 8),
        (spec(8, 16, 128, 0, 1), 128),
        // Four replicas on a node.
        (spec(2, 4, 16, 0, 1), 4),
        (spec(2, 4, 16, 1, 8), 2),
        // Each node has a stage of both replicas.
        (spec(4, 2, 2, 0, 1), 1),
        (LayoutSpec { expert_parallel: 32, ..spec(1, 4, 64, 1, 32) }, 2),
        (LayoutSpec { context_parallel: 4, ..spec(8, 1, 4, 0, 1) }, 4),
    ] {
        assert_eq!(spec.replica_groups(8), groups, "{spec:?}");
    }
}

proptest! {
    #![proptest_config(drawn(40))]

    /// Ranks that write as much as the fullest write at least all states once.
    #[test]
    fn ranks_write_all_states(setup in setups()) {
        let problem = setup.problem();
        let request = Request { find_closest: false, ..Request::default() };
        let plans = search(&problem, &request, &mut |_| Go::On).plans;
        for plan in plans {
            let CheckpointBytes { all, of_fullest_gpu } = CheckpointBytes::new(&problem, &plan);
            let written = of_fullest_gpu.as_f64() * f64::from(problem.limits.num_gpus);
            prop_assert!(written >= all.as_f64() * (1.0 - 1e-6), "{written} of {all} {:?}", plan.layout);
        }
    }
}
