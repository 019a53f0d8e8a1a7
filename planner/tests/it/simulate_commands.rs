//! Whole runs of `planner simulate`: figures that add up, timelines, stragglers, plans that cannot be.

use std::fs;

use serde_json::{Value, json};

use crate::bad_input::{Workplace, check_error};
use crate::cli::{planner, run};

/// Plans of a model of 4 layers: one GPU; pipelines of few and of many stages; replicas whose first
/// passes wait for parameters; every parallelism at once.
const PLANS: [(&str, &str); 6] = [
    ("alone", "--gpus 1 --layout dp1"),
    ("pipeline", "--gpus 4 --layout pp4 --global-batch-size 16"),
    ("stages", "--gpus 2 --layout pp2-vpp3 --global-batch-size 8"),
    ("sharded", "--gpus 4 --layout dp4-zero3 --global-batch-size 8"),
    (
        "slow-network",
        "--gpus 32 --layout pp2-dp16 --cluster rtx-4090 --zero 1 --schedule 1f1b \
         --global-batch-size 64 --seq-len 1024",
    ),
    ("all", "--gpus 16 --layout tp2-cp2-pp2-dp2-zero2 --global-batch-size 16"),
];

/// Writes the plans into a folder; gives their names and texts.
pub(crate) fn plans(place: &Workplace) -> Vec<(String, Value)> {
    let plans = PLANS.iter().map(|(name, args)| {
        let (model, path) = (place.path("model.json"), place.path(&format!("{name}.json")));
        let run = run(&format!("evaluate {model} --quiet -o {path} {args}"));
        assert_eq!(run.code, Some(0), "{args}: {run:?}");
        (path.clone(), serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap())
    });
    plans.collect()
}

fn report(plan: &str, more: &[&str]) -> Value {
    planner(&[&["simulate", plan, "--format", "json"], more].concat()).json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn sum(values: &Value) -> f64 {
    values.as_object().expect("an object").values().map(number).sum()
}

/// To the rounding of some sums of floats.
fn check_equal(what: &str, a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{what}: {a} is not {b}");
}

#[test]
fn figures_add_up() {
    let place = Workplace::new();
    for (path, plan) in plans(&place) {
        let report = report(&path, &[]);
        let step = number(&report["step_time_seconds"]);
        check_equal(&path, step, number(&plan["prediction"]["step_time_seconds"]));
        check_equal(&path, sum(&report["critical_path"]), step);
        let ranks = report["ranks"].as_array().unwrap();
        assert_eq!(ranks.len() as u64, plan["layout"]["pipeline_parallel"].as_u64().unwrap());
        let (mut gpus, mut idle, mut peak) = (0, 0.0, 0);
        for (index, rank) in ranks.iter().enumerate() {
            assert_eq!(rank["pipeline_rank"], index);
            let parts = rank["breakdown"].as_object().unwrap();
            assert!(parts.values().all(|time| number(time) >= 0.0), "{path}: {parts:?}");
            check_equal(&path, sum(&rank["breakdown"]), step);
            assert_eq!(rank["idle_seconds"], parts["pipeline_bubble_seconds"], "{path}");
            let alike = rank["num_gpus"].as_u64().unwrap();
            gpus += alike;
            idle += number(&rank["idle_seconds"]) * alike as f64;
            peak = peak.max(rank["peak_memory_bytes"].as_u64().unwrap());
        }
        assert_eq!(gpus, plan["num_gpus"].as_u64().unwrap(), "{path}");
        check_equal(&path, number(&report["idle_fraction"]), idle / (gpus as f64 * step));
        assert_eq!(report["breakdown"], plan["prediction"]["breakdown"], "{path}");
        assert_eq!(peak, plan["prediction"]["peak_memory_bytes"].as_u64().unwrap(), "{path}");
        if ranks.len() == 1 {
            assert!(number(&report["idle_fraction"]) < 1e-9, "nobody to wait for: {report}");
        }
    }
}

/// The table says what the JSON says, and reads well.
#[test]
fn a_step_is_described() {
    let place = Workplace::new();
    for (path, plan) in plans(&place) {
        let run = planner(&["simulate", &path]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        let title = format!(
            "model on {}: {} GPU{}, ",
            plan["cluster"]["name"].as_str().unwrap(),
            plan["num_gpus"],
            if plan["num_gpus"] == 1 { "" } else { "s" }
        );
        assert!(run.stdout.starts_with(&title), "{}", run.stdout);
        let step = format!("\nstep {:.4} s, ", number(&plan["prediction"]["step_time_seconds"]));
        assert!(run.stdout.contains(&step), "{}", run.stdout);
        for heading in ["rank  GPUs  compute", "critical path"] {
            assert!(run.stdout.contains(heading), "no `{heading}` in\n{}", run.stdout);
        }
        assert!(run.stdout.lines().all(|line| line.chars().count() <= 100), "{}", run.stdout);
        assert!(!run.stdout.contains("NaN") && !run.stdout.contains("inf"), "{}", run.stdout);
    }
}

#[test]
fn a_timeline_is_a_chrome_trace() {
    let place = Workplace::new();
    let timeline = place.path("out.trace");
    for (path, plan) in plans(&place) {
        let report = report(&path, &["-o", &timeline]);
        let text = fs::read_to_string(&timeline).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let ended = events.iter().filter(|event| event["ph"] == "X").map(|event| {
            assert!(event["name"].is_string() && event["tid"].is_u64(), "{event}");
            number(&event["ts"]) + number(&event["dur"])
        });
        let end = ended.fold(0.0, f64::max) * 1e-6;
        check_equal(&path, end, number(&report["step_time_seconds"]));
        let tracks: u64 = plan["layout"]["pipeline_parallel"].as_u64().unwrap();
        assert!(events.iter().all(|event| event["pid"].as_u64().unwrap() < tracks), "{path}");
        // Again, the same bytes, whatever was there; nothing else is left behind.
        planner(&["simulate", &path, "-o", &timeline]);
        assert_eq!(fs::read_to_string(&timeline).unwrap(), text);
    }
    let files = fs::read_dir(place.path("")).unwrap().count();
    assert_eq!(files, PLANS.len() + 2, "the model, the plans, the timeline");
}

/// Steps of four replicas, the second of which is so many times as slow.
fn straggling(place: &Workplace, method: &str, factor: u32) -> [f64; 2] {
    let (model, path) = (place.path("model.json"), place.path("replicas.json"));
    let job = format!("{model} --gpus 4 --layout dp4 --global-batch-size 128 --framework executor");
    let run = run(&format!("evaluate {job} --data-parallel-method {method} -q -o {path}"));
    assert_eq!(run.code, Some(0), "{run:?}");
    let straggler = format!("1:{factor}");
    let report = report(&path, &["--straggler", &straggler]);
    let text = planner(&["simulate", &path, "--straggler", &straggler]).stdout;
    assert!(text.contains(&format!("with rank 1 {factor} times as slow: step ")), "{text}");
    [&report, &report["straggler"]].map(|of| number(&of["step_time_seconds"]))
}

/// All wait for the slowest, or go on until its gradients would be too old.
#[test]
fn a_straggler_holds_up_those_that_wait_for_it() {
    let place = Workplace::new();
    for method in ["all-reduce", "parameter-server", "ring-averaging"] {
        let [planned, same] = straggling(&place, method, 1);
        check_equal(method, same, planned);
        let [_, slow] = straggling(&place, method, 4);
        assert!(
            3.0 * planned < slow && slow < 4.0 * planned,
            "{method}: {slow}, planned {planned}"
        );
    }
    let [_, waiting] = straggling(&place, "all-reduce", 4);
    let asynchronous =
        |staleness: u32, factor| straggling(&place, &format!("asynchronous:{staleness}"), factor);
    for staleness in [0, 1, 2, 4, 12] {
        let [planned, same] = asynchronous(staleness, 1);
        // Whole rounds are counted in nanoseconds.
        assert!((same - planned).abs() < 0.025 * planned, "{staleness}: {same}, planned {planned}");
    }
    // While the slow one computes, in the time of a step in which all wait for it, there are as many updates as
    // may be missed, of twelve that the others would make; then its own. Where only two may have weights, the
    // others take turns while it waits for its own.
    for (staleness, expected) in
        [(1, 5.0 / 4.0), (4, 4.0 / 5.0), (8, 4.0 / 9.0), (12, 4.0 / 13.0), (100, 4.0 / 13.0)]
    {
        let [_, slow] = asynchronous(staleness, 4);
        assert!(
            (slow / waiting / expected - 1.0).abs() < 0.1,
            "{staleness}: {slow}, not {waiting} {expected}"
        );
    }
}

#[test]
fn options_that_cannot_be() {
    let place = Workplace::new();
    let (plan, _) = plans(&place).swap_remove(0);
    for (flags, words) in [
        ("--straggler 1:2", &["no rank 1", "hint: 0 to 0"][..]),
        ("--straggler 0:0.5", &["--straggler", "such as 1:4"]),
        ("--format csv", &["csv", "table, json"]),
        ("-o {}/nowhere/out.json", &["nowhere/out.json", "no folder"]),
        ("-o {}", &["is a folder"]),
    ] {
        place.fails(&format!("simulate {plan} {flags}"), words);
    }
}

#[test]
fn plans_that_cannot_be_simulated() {
    let place = Workplace::new();
    let (path, plan) = plans(&place).swap_remove(1);
    let text = fs::read_to_string(&path).unwrap();
    let timeline = place.path("timeline.json");
    assert_eq!(planner(&["simulate", &path, "-o", &timeline]).code, Some(0));
    let simulate = "simulate {}/bad.json -o {}/out.json";
    for (text, words) in [
        ("", &["empty, not a plan"][..]),
        ("not JSON", &["line 1"]),
        ("[]", &["line 1"]),
        ("{}", &["line 1", "is missing"]),
        ("{\"traceEvents\": []}", &["is a timeline, not a plan"]),
        (&text[..text.len() / 2], &["line", "the file ends here"]),
        (&fs::read_to_string(&timeline).unwrap(), &["is a timeline, not a plan", "planner chart"]),
        (
            &fs::read_to_string(place.path("model.json")).unwrap(),
            &["the description of a model, not a plan"],
        ),
    ] {
        place.write("bad.json", text);
        place.fails(simulate, &[&["bad.json"], words].concat());
    }
    for (pointer, value) in [
        ("/prediction/step_time_seconds", json!(1e-9)),
        ("/layout/pipeline_parallel", json!(2)),
        ("/layout/data_parallel", json!(1_000_000)),
        ("/stages/1/num_blocks", json!(0)),
        ("/num_gpus", json!(0)),
    ] {
        let mut plan = plan.clone();
        *plan.pointer_mut(pointer).unwrap() = value;
        place.write("bad.json", plan.to_string());
        place.fails(simulate, &["bad.json"]);
    }
    fs::create_dir(place.path("folder")).unwrap();
    place.fails("simulate {}/folder", &["folder", "directory"]);
    place.fails("simulate {}/nothing.json", &["nothing.json", "No such file"]);
    place.fails("simulate", &["<PLAN>"]);
}

#[cfg(unix)]
#[test]
fn timelines_may_go_to_devices() {
    let place = Workplace::new();
    let (plan, _) = plans(&place).swap_remove(0);
    let run = planner(&["simulate", &plan, "-o", "/dev/null"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let run = planner(&["simulate", &plan, "-o", "/dev/stdout"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.starts_with("{\"displayTimeUnit\"") && run.stdout.contains("\nstep "));
    if fs::metadata("/dev/full").is_ok() {
        let args = ["simulate", &plan, "-o", "/dev/full"];
        check_error(&planner(&args), &args, &["/dev/full", "No space left"]);
    }
}
