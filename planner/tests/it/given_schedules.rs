//! Schedules of the user's own, as those of plans.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Run, planner, run};

const GPT2: [&str; 6] = ["models/gpt2", "--gpus", "8", "--global-batch-size", "32", "--quiet"];

struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The schedule of a family, in a file.
    fn family(&self, name: &str, more: &[&str]) -> String {
        let run = planner(&[&["schedule", name, "--format", "csv"], more].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        self.write(&format!("{name}.csv"), &run.stdout)
    }
}

fn evaluate(schedule: &str, more: &[&str]) -> Run {
    let args = ["--schedule", schedule, "--format", "json"];
    planner(&[&["evaluate"], &GPT2[..], &args, more].concat())
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What a plan takes and holds.
fn taken(run: &Run) -> [Value; 3] {
    let plan = &run.json()["plans"][0];
    ["step_time_seconds", "peak_memory_bytes", "breakdown"].map(|name| plan[name].clone())
}

/// A family's schedule in a file takes and holds what the family does: whatever follows from an order follows from it.
#[test]
fn the_file_of_a_family_is_the_family() {
    let desk = Desk::new();
    let numbers = ["--stages", "4", "--micro-batches", "16"];
    for (name, stages, zero) in [
        ("1f1b", 1, "1"),
        ("gpipe", 1, "0"),
        ("interleaved-1f1b", 2, "1"),
        ("looped-bfs", 3, "0"),
        ("zb-h1", 1, "1"),
        ("interleaved-zb", 2, "0"),
        ("zbv", 2, "0"),
        ("v-half", 2, "0"),
        ("dualpipev", 2, "0"),
    ] {
        let stages = stages.to_string();
        let layout = ["--layout", "pp4-dp2", "--micro-batch-size", "1", "--zero", zero];
        let layout = [&layout[..], &["--framework", "ideal"]].concat();
        let family = evaluate(name, &[&layout[..], &["--virtual-stages", &stages]].concat());
        let file = desk.family(name, &[&numbers[..], &["--virtual-stages", &stages]].concat());
        let given = evaluate(&file, &layout);
        assert_eq!(taken(&family), taken(&given), "{name}");
    }
}

/// Where a rank does more forwards first, it keeps more; where it waits for less, it is faster.
#[test]
fn time_and_memory_follow_from_the_order() {
    let desk = Desk::new();
    let order = |name: &str, rows: [&str; 2]| {
        let file = desk.write(name, &rows.join("\n"));
        let more = ["--layout", "pp2-dp4", "--micro-batch-size", "2", "--framework", "ideal"];
        let kept = ["--recompute", "none", "--headroom", "0", "--stages", "8,4"];
        let run = evaluate(&file, &[&more[..], &kept].concat()).json();
        let plan = &run["plans"][0];
        assert_eq!(plan["layout"]["num_micro_batches"], 4);
        let second = |name: &str| plan[name].as_f64().unwrap();
        [second("step_time_seconds"), second("peak_memory_bytes")]
    };
    let last = "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3";
    let [soon, lean] = order("1.csv", ["0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3", last]);
    let [greedy, full] = order("2.csv", ["0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3", last]);
    let [lazy, least] = order("3.csv", ["0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3", last]);
    assert!(least <= lean && lean < full, "{least}, {lean}, {full}");
    assert!(lazy > 1.2 * soon && greedy <= soon * 1.000_001, "{lazy}, {soon}, {greedy}");
}

/// A plan has the order in it, and what is made of the plan has it too.
#[test]
fn a_plan_keeps_the_schedule() {
    let desk = Desk::new();
    let csv = "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\r\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\r\n";
    let file = desk.write("own.csv", csv);
    let plan = desk.path("plan.json");
    let job = desk.path("job");
    let back = desk.path("back.json");
    let [plan_path, job_path, back_path] = [&plan, &job, &back].map(|path| path.to_str().unwrap());
    let model = "models/llama-3.1-8b";
    let asked =
        format!("{model} --gpus 8 --global-batch-size 16 --framework torchtitan --cluster h200");
    let run = run(&format!("search {asked} --schedule {file} --quiet -o {plan_path}"));
    assert_eq!(run.code, Some(0), "{run:?}");
    let written = read(&plan);
    assert_eq!(written["layout"]["schedule"], csv.trim_end().replace("\r\n", "\n"));
    assert_eq!(written["layout"]["pipeline_parallel"], 2);
    for command in ["explain", "simulate"] {
        let run = planner(&[command, plan_path]);
        assert_eq!(run.code, Some(0), "{command}: {run:?}");
    }
    let run = planner(&["export", plan_path, "--to", "torchtitan", "-o", job_path]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(fs::read_to_string(job.join("schedule.csv")).unwrap(), csv);
    let script = fs::read_to_string(job.join("torchtitan.sh")).unwrap();
    let option = "--parallelism.pipeline_parallel_schedule_csv \"$HERE/schedule.csv\"";
    assert!(script.contains(option), "{script}");
    let script = job.join("torchtitan.sh");
    let script = script.to_str().unwrap();
    let import = ["import", script, "--model", model, "--cluster", "h200", "-o", back_path];
    let run = planner(&import);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(read(&back)["layout"], written["layout"]);
    let traces = desk.path("traces");
    let run = planner(&["export", plan_path, "--to", "chakra", "-o", traces.to_str().unwrap()]);
    assert_eq!(run.code, Some(0), "{run:?}");
    for tool in ["megatron", "deepspeed", "nanotron"] {
        let run = planner(&["export", plan_path, "--to", tool]);
        assert_eq!(run.code, Some(2), "{tool}: {run:?}");
        assert!(run.stderr.contains("schedule given"), "{tool}: {run:?}");
    }
    // An edited order is held to the same rules.
    let edited = written["layout"]["schedule"].as_str().unwrap().replace("1B3", "1F3");
    let mut broken = written.clone();
    broken["layout"]["schedule"] = edited.into();
    let path = desk.write("broken.json", &broken.to_string());
    let run = planner(&["explain", &path]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("`1F3` stands here a second time"), "{run:?}");
}

/// What cannot be a plan's schedule, each with what is said.
#[test]
fn schedules_that_no_plan_has() {
    let desk = Desk::new();
    let good = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    let check = |csv: &str, more: &[&str], expected: &[&str]| {
        let file = desk.write("own.csv", csv);
        let run = evaluate(&file, more);
        assert_eq!(run.code, Some(2), "{csv}: {run:?}");
        for expected in expected {
            assert!(run.stderr.contains(expected), "{csv}: {}", run.stderr);
        }
    };
    let layout = ["--layout", "pp2-dp4", "--micro-batch-size", "4", "--framework", "ideal"];
    for (csv, expected) in [
        ("0F0,0X1\n1F0\n", &["row 1, column 2: `0X1`"][..]),
        ("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", &["`0B1` is missing", "0 | 0F0 [0F1] 0B0"]),
        (
            "0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1,1B1\n",
            &["`1B1` stands here a second time", "1 | 1F0 1B0 1F1 1B1 [1B1]"],
        ),
        ("0F0,0B0\n", &["one rank"]),
        ("0F0,1F0,1B0,0B0\n2F0,2B0\n", &["3 stages do not divide over 2 ranks"]),
        ("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n", &["row 1: `1F0` is on rank 0"]),
        ("", &["is empty, not the order of a pipeline schedule"]),
    ] {
        check(csv, &layout, expected);
    }
    check(good, &["--layout", "pp4-dp2"], &["`pp4`", "of 2 ranks"]);
    let other = ["--layout", "pp2-dp4", "--micro-batch-size", "2", "--framework", "ideal"];
    check(good, &other, &["2 ranks with 1 stage each and 2 micro-batches", "4 micro-batches"]);
    let with_messages = ["--stages", "2", "--micro-batches", "2", "--communication"];
    let run = evaluate(&desk.family("1f1b", &with_messages), &layout);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("row 1: `0SEND_F0` of rank 0 is no pass"), "{run:?}");
    let both = format!("{},1f1b", desk.write("own.csv", good));
    let run = evaluate(&both, &layout);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("stands alone"), "{run:?}");
    let run = evaluate("nowhere.csv", &layout);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("nowhere.csv"), "{run:?}");
    // A framework that runs no such schedule is not searched for one that does.
    let file = desk.write("own.csv", good);
    let search = ["--framework", "megatron-core", "--schedule", &file];
    let run = planner(&[&["search"], &GPT2[..], &search].concat());
    assert_ne!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("given"), "{run:?}");
}
