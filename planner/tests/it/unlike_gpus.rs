//! GPUs of several kinds, as the command takes and shows them.

use serde_json::{Value, json};

use crate::bad_input::Workplace;
use crate::cli::planner;

const MIXED: [&str; 5] = ["models/llama-3.1-8b", "--gpus", "48", "--cluster", "h100:2,a100:4"];

/// The result of a command on GPUs of two kinds, without what differs from run to run.
fn settled(words: &[&str]) -> Value {
    let mut found = planner(&[words, &["--format", "json", "--quiet"]].concat()).json();
    found["search"]["elapsed_seconds"] = Value::Null;
    found
}

#[test]
fn every_rank_has_its_group_and_layers() {
    let layout = ["--layout", "tp8-pp6-dp1"];
    let found = settled(&[&["evaluate"], &MIXED[..], &layout].concat());
    let plan = &found["plans"][0];
    let ranks = plan["ranks"].as_array().unwrap();
    let layers = |group: &str| -> Vec<u64> {
        let own = ranks.iter().filter(|rank| rank["group"] == group);
        own.map(|rank| rank["layers"].as_u64().unwrap()).collect()
    };
    let (fast, slow) = (layers("h100"), layers("a100"));
    assert_eq!([fast.len(), slow.len()], [2, 4]);
    assert_eq!(fast.iter().chain(&slow).sum::<u64>(), 32);
    assert!(fast.iter().min() > slow.iter().max(), "{fast:?} and {slow:?}");
    assert_eq!(plan["unsupported"], Value::Null);
}

const REPLICAS: [&str; 4] = ["--layout", "tp8-pp1-dp6", "--micro-batch-size", "1"];

/// Sum of a value of the replicas of a plan over those of a group, and their number.
fn of_group(plan: &Value, group: &str) -> (f64, usize) {
    let ranks = plan["ranks"].as_array().unwrap();
    let own: Vec<&Value> = ranks.iter().filter(|rank| rank["group"] == group).collect();
    (own.iter().map(|rank| rank["share_of_batch"].as_f64().unwrap()).sum(), own.len())
}

#[test]
fn every_replica_has_its_group_and_share_of_the_batch() {
    let found = settled(&[&["evaluate"], &MIXED[..], &REPLICAS].concat());
    let plan = &found["plans"][0];
    let [(fast, num_fast), (slow, num_slow)] = ["h100", "a100"].map(|group| of_group(plan, group));
    assert_eq!([num_fast, num_slow], [2, 4]);
    assert!((fast + slow - 1.0).abs() < 1e-9, "{fast} and {slow}");
    assert!(fast / 2.0 > 1.5 * slow / 4.0, "{fast} and {slow}");
    let by_group = plan["layout"]["micro_batches_by_group"].as_array().unwrap();
    let numbers: Vec<u64> = by_group.iter().map(|number| number.as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), 2);
    assert_eq!(plan["layout"]["num_micro_batches"], json!(numbers.iter().max().unwrap()));
    let replicas: Vec<&Value> =
        plan["ranks"].as_array().unwrap().iter().map(|rank| &rank["replica"]).collect();
    assert_eq!(json!(replicas), json!([0, 1, 2, 3, 4, 5]));
    assert_eq!(plan["unsupported"], Value::Null);
}

#[test]
fn gpus_whose_collectives_do_not_meet_are_warned_of() {
    let evaluated = |cluster| {
        let problem = ["models/llama-3.1-8b", "--gpus", "16", "--cluster", cluster];
        planner(&[&["evaluate"], &problem[..], &["--layout", "tp8-pp1-dp2"]].concat()).stderr
    };
    let warned = evaluated("h100:1,mi300x:1");
    assert!(warned.contains("H100-SXM5-80GB, MI300X"), "{warned}");
    assert!(!evaluated("h100:1,a100:1").contains("warning"));
}

#[test]
fn a_framework_without_unequal_shares_has_equal_ones() {
    let framework = ["--framework", "megatron-core"];
    let found = settled(&[&["evaluate"], &MIXED[..], &REPLICAS, &framework].concat());
    let plan = &found["plans"][0];
    assert_eq!(plan["unsupported"], Value::Null);
    let each = found["plans"][0]["layout"]["num_micro_batches"].clone();
    assert_eq!(plan["layout"]["micro_batches_by_group"], json!([each, each]));
    let even = plan["step_time_seconds"].as_f64().unwrap();
    let ideal = settled(&[&["evaluate"], &MIXED[..], &REPLICAS].concat());
    assert!(ideal["plans"][0]["step_time_seconds"].as_f64().unwrap() < even / 1.2);
}

#[test]
fn failures_of_replicas_in_groups_are_simulated() {
    let alone = ["--pp", "1", "--tp", "8", "--tokens", "1T", "--slow-nodes", "1%,1.5"];
    let found = settled(&[&["search"], &MIXED[..], &alone].concat());
    assert_eq!(found["plans"][0]["ranks"][0]["replica"], 0);
    let run = &found["training_run"];
    assert!(run["days"].as_f64() > run["days_without_failures"].as_f64(), "{run}");
}

#[test]
fn replicas_of_several_stages_are_not_started() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let stages = ["--layout", "tp4-pp2", "--framework", "megatron-core", "-o", &plan];
    let run = planner(&[&["evaluate"], &MIXED[..], &stages].concat());
    assert_eq!(run.code, Some(0), "{}", run.transcript());
    let run = planner(&["export", &plan, "--to", "megatron"]);
    assert!(run.stderr.contains("ranks are started stage by stage"), "{}", run.transcript());
}

#[test]
fn a_plan_of_replicas_is_read_back() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let write = ["--quiet", "-o", &plan];
    assert_eq!(planner(&[&["evaluate"], &MIXED[..], &REPLICAS, &write].concat()).code, Some(0));
    let explained = planner(&["explain", &plan]);
    assert!(explained.stdout.contains("2 replicas on h100: "), "{}", explained.transcript());
    let [timeline, traces] = ["timeline.json", "traces"].map(|name| place.path(name));
    assert_eq!(planner(&["simulate", &plan, "-o", &timeline]).code, Some(0));
    let tracks = std::fs::read_to_string(&timeline).unwrap();
    assert!(tracks.contains("on a100") && tracks.contains("on h100"));
    for (words, says) in [
        (&["simulate", &plan, "--straggler", "0:2"][..], "have steps of their own"),
        (&["export", &plan, "--to", "megatron"], "made with `--framework megatron-core`"),
        (&["export", &plan, "--to", "chakra", "-o", &traces], "have steps of their own"),
    ] {
        let run = planner(words);
        assert_eq!(run.code, Some(2), "{}", run.transcript());
        assert!(run.stderr.contains(says), "{}", run.stderr);
    }
    let plain: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    for (numbers, says) in [
        (json!([1, 1]), "largest of which is `num_micro_batches`"),
        (json!([1, 2, 3]), "with 2 groups of GPUs"),
        (json!([0, 1]), "takes up to 4 numbers of at least 1"),
    ] {
        let mut edited = plain.clone();
        edited["layout"]["micro_batches_by_group"] = numbers;
        let edited = place.write("edited.json", edited.to_string());
        let refused = planner(&["explain", &edited]);
        assert_eq!(refused.code, Some(2), "{}", refused.transcript());
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
    let mut edited = plain.clone();
    edited["ranks"][0]["share_of_batch"] = json!(0.5);
    let refused = planner(&["explain", &place.write("edited.json", edited.to_string())]);
    assert_eq!(refused.code, Some(2));
}

#[test]
fn equal_groups_are_one_and_their_order_does_not_matter() {
    let of =
        |cluster| settled(&["search", "models/llama-3.1-8b", "--gpus", "32", "--cluster", cluster]);
    assert_eq!(of("a100:1,a100:3"), of("a100"));
    let layout = ["evaluate", "models/llama-3.1-8b", "--gpus", "48", "--layout", "tp8-pp6-dp1"];
    let of = |cluster| settled(&[&layout[..], &["--cluster", cluster]].concat());
    assert_eq!(of("a100:4,h100:2"), of("h100:1,a100:4,h100:1"));
}

#[test]
fn a_framework_that_cannot_is_named_with_those_that_can() {
    let layout = ["--layout", "tp8-pp6-dp1", "--framework", "megatron-core"];
    let found = settled(&[&["evaluate"], &MIXED[..], &layout].concat());
    let unsupported = found["plans"][0]["unsupported"].to_string();
    assert!(unsupported.contains("GPUs of several kinds"), "{unsupported}");
    let run = planner(&[&["search"], &MIXED[..], &["--framework", "megatron-core"]].concat());
    assert_eq!(run.code, Some(0));
    assert!(run.stderr.contains("`--framework ideal`"), "{}", run.stderr);
}

#[test]
fn a_plan_is_read_back_and_one_that_was_edited_is_refused() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let layout = ["--layout", "tp8-pp6-dp1", "--quiet", "-o", &plan];
    assert_eq!(planner(&[&["evaluate"], &MIXED[..], &layout].concat()).code, Some(0));
    let explained = planner(&["explain", &plan]);
    assert!(explained.stdout.contains("on h100: "), "{}", explained.transcript());
    let mut edited: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    edited["ranks"][0]["layers"] = json!(31);
    let edited = place.write("edited.json", edited.to_string());
    let refused = planner(&["explain", &edited]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("`ranks`"), "{}", refused.stderr);
}

/// A network of a tenth of a gigabyte per second.
fn thin_level() -> Value {
    json!({"name": "thin", "bandwidth_bytes_per_second": 1e8, "latency_seconds": 1e-3})
}

/// Groups of the same nodes are one cluster, in which what joins the groups stays what it is.
#[test]
fn a_thin_link_between_groups_of_the_same_nodes_counts() {
    let place = Workplace::new();
    let group = json!({"nodes": 1, "cluster": "h100"});
    let halls = json!({"groups": [group, group], "levels": [thin_level()]});
    let halls = place.write("halls.json", halls.to_string());
    let layout = ["evaluate", "models/llama-3.2-1b", "--gpus", "16", "--layout", "dp16"];
    let seconds = |cluster: &str| {
        let found = settled(
            &[&layout[..], &["--cluster", cluster, "--zero", "1", "--zero-shard", "16"]].concat(),
        );
        found["plans"][0]["step_time_seconds"].as_f64().unwrap()
    };
    // 2.5 GB of gradients and as much of parameters go once over eight such links.
    let added = seconds(&halls) - seconds("h100");
    assert!((5.0..8.0).contains(&added), "{added}");
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let place = Workplace::new();
    for (cluster, says) in [
        ("h100:0,a100:4".to_owned(), "`groups[0].nodes` is 0"),
        ("h100:2,a101:4".to_owned(), "cluster `a101`"),
        ("h100:2,a100:3".to_owned(), "48 GPUs, but the cluster's groups have 40"),
        (place.write("none.json", json!({"groups": []}).to_string()), "`groups` is empty"),
        (
            place.write(
                "one.json",
                json!({"groups": [{"nodes": 6, "cluster": "h100"}], "levels": [thin_level()]})
                    .to_string(),
            ),
            "`levels` is of groups of the same nodes",
        ),
        (
            place.write("name.json", json!({"groups": [{"nodes": 1, "cluster": "x"}]}).to_string()),
            "`groups[0].cluster` is `x`",
        ),
        (format!("h100:2,{}:4", place.write("own.json", "{}")), "is a file, but only presets"),
    ] {
        let run =
            planner(&["search", "models/llama-3.1-8b", "--gpus", "48", "--cluster", &cluster]);
        assert_eq!(run.code, Some(2), "{}", run.transcript());
        assert!(run.stderr.contains(says), "{}", run.stderr);
    }
    let layout = ["evaluate", "models/llama-3.1-8b", "--layout", "tp8-pp2-dp3", "--gpus", "48"];
    let run = planner(&[&layout[..], &["--cluster", "h100:1,a100:5"]].concat());
    assert_eq!(run.code, Some(2), "{}", run.transcript());
    assert!(run.stderr.contains("groups of"), "{}", run.stderr);
}

const SMALL: [&str; 5] = ["models/llama-3.2-1b", "--gpus", "24", "--cluster", "a100:2,h100:1"];
const BATCH: [&str; 2] = ["--global-batch-size", "48"];

fn step_seconds(plan: &Value) -> f64 {
    plan["step_time_seconds"].as_f64().unwrap_or_else(|| panic!("no time in {plan}"))
}

/// The fastest of the plans that a search with these options shows.
fn searched(options: &[&str]) -> f64 {
    let found = settled(&[&["search"], options].concat());
    let plans = found["plans"].as_array().unwrap().iter().map(step_seconds);
    plans.fold(f64::INFINITY, f64::min)
}

/// A named layout that is best on some of the nodes is compared with the best on any.
#[test]
fn a_named_layout_is_compared_with_the_best_on_any_nodes() {
    let options = [&SMALL[..], &BATCH].concat();
    let named = [&["evaluate"], &options[..], &["--layout", "tp1-dp8"]].concat();
    let found = settled(&named);
    assert_eq!(found["num_gpus"], 8);
    assert_eq!(step_seconds(&found["best"]).to_bits(), searched(&options).to_bits());
    let text = planner(&named).stdout;
    assert!(text.contains(" on a100:2,h100:1; this one "), "{text}");
    assert!(text.contains("with which this layout is no faster"), "{text}");
}

/// Answers about another batch and another layout are what a search and an evaluation of their own find.
#[test]
fn questions_choose_among_all_nodes() {
    let mixed = ["models/llama-3.2-1b", "--gpus", "16", "--cluster", "a100:1,h100:1"];
    let of_batch = |batch| [&mixed[..], &["--global-batch-size", batch]].concat();
    let layout = "tp2-cp4-pp1-dp2";
    let asked = [&["search"], &of_batch("50")[..], &["--best-batch", "--why-not", layout]].concat();
    let found = settled(&asked);
    let batches = found["batches"].as_array().unwrap();
    let point = batches.iter().find(|point| point["global_batch_size"] == 64).unwrap();
    assert_eq!(step_seconds(point).to_bits(), searched(&of_batch("64")).to_bits());
    assert_eq!(point["nodes"], "a100:1,h100:1");
    let evaluated = settled(&[&["evaluate"], &of_batch("50")[..], &["--layout", layout]].concat());
    let why_not = &found["why_not"][0];
    let difference = why_not["difference"]["step_time_seconds"].as_f64().unwrap();
    let [asked, first] = [&evaluated, &found].map(|it| step_seconds(&it["plans"][0]));
    assert!((first + difference - asked).abs() < 1e-9, "{why_not}");
}

#[test]
fn a_search_of_nodes_that_is_cut_short_says_so() {
    let limit = ["--time-limit", "1ms"];
    let text = planner(&[&["search"], &SMALL[..], &BATCH, &limit].concat()).stdout;
    assert!(!text.contains("cannot be faster"), "{text}");
    assert!(text.contains("of 7 choices of nodes were searched"), "{text}");
}

/// Both have fp16; V100s have no bf16.
#[test]
fn the_usual_precision_is_one_that_all_gpus_have() {
    let mixed = ["models/llama-3.2-1b", "--gpus", "16", "--cluster", "v100:1,h100:1"];
    assert_eq!(settled(&[&["search"], &mixed[..]].concat())["training"]["precision"], "fp16");
}

/// Kernels take the times of each group's GPUs, and a faster group's replicas wait for the others.
#[test]
fn each_group_has_its_own_kernels_and_waits() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let write = ["--quiet", "-o", &plan];
    assert_eq!(planner(&[&["evaluate"], &MIXED[..], &REPLICAS, &write].concat()).code, Some(0));
    let explained = planner(&["explain", &plan, "--format", "json"]).json();
    let kernels = explained["kernels"].as_array().unwrap();
    let seconds = |group: &str| -> f64 {
        let own = kernels.iter().filter(|row| row["group"] == group);
        own.map(|row| row["forward_seconds"].as_f64().unwrap()).sum()
    };
    assert!(seconds("h100") < seconds("a100") / 1.5);
    let linted = planner(&["lint", &plan, "--format", "json"]).json();
    let ranks = linted["prediction"]["ranks"].as_array().unwrap();
    let step = linted["prediction"]["step_time_seconds"].as_f64().unwrap();
    let waits = |rank: &Value| rank["bubble_seconds"].as_f64().unwrap();
    assert!(ranks.iter().any(|rank| waits(rank) == 0.0), "{ranks:?}");
    assert!(ranks.iter().any(|rank| waits(rank) > 1e-4 * step), "{ranks:?}");
}

/// Energy is that of each kind's GPUs, and a checkpoint is written by the nodes of all groups.
#[test]
fn a_run_counts_the_gpus_and_nodes_of_all_groups() {
    let of = |cluster: &str, more: &[&str]| {
        let words = ["search", "models/llama-3.1-8b", "--gpus", "32", "--cluster", cluster];
        settled(&[&words[..], &["--tokens", "1T"], more].concat())["training_run"].clone()
    };
    let number = |run: &Value, name: &str| run[name].as_f64().unwrap();
    let run = of("v100:2,h100:2", &["--precision", "fp16"]);
    let mean = number(&run, "megawatt_hours") * 1e6 / (number(&run, "days") * 24.0 * 32.0);
    assert!((mean / 500.0 - 1.0).abs() < 1e-6, "{mean} W a GPU, of 300 and 700");
    let run = of("gh200:16,h100:2", &["--framework", "ideal"]);
    let written = number(&run, "checkpoint_bytes") / 18e9;
    let stall = number(&run, "checkpoint_seconds");
    assert!((stall / written - 1.0).abs() < 1e-6, "{stall} s, not {written} with 18 nodes");
}
