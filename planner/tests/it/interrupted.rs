//! Searches that end before they are done: by a time limit, or by the user.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::bad_input::Workplace;
use crate::cli::{command, planner};

/// A search that goes on long after its first plans: with so many micro-batches bounds prune little, they are held
/// against the thousandth plan, and one thread does all of it.
const LONG: [&str; 13] = [
    "search",
    "models/llama-3.1-405b",
    "--gpus",
    "131072",
    "--global-batch-size",
    "131072",
    "--threads",
    "1",
    "--top",
    "1000",
    "--quiet",
    "--format",
    "json",
];

#[test]
fn limits_that_are_no_times() {
    let place = Workplace::new();
    for limit in ["0", "0s", "-1s", "soon", "5parsecs", "", "1e400s", "NaN"] {
        let search =
            format!("search {{}}/model.json --gpus 8 -o {{}}/plan.json --time-limit={limit}");
        place.fails(&search, &["--time-limit", "a time above 0, such as `5s`"]);
    }
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() {
    let search = ["search", "models/llama-3.1-8b", "--gpus", "8", "--format", "json"];
    let free = planner(&search).json();
    let limited = planner(&[&search[..], &["--time-limit", "2h"]].concat()).json();
    assert_eq!(limited["plans"], free["plans"]);
    assert_eq!(limited["search"]["stop_reason"], "exhausted");
}

#[test]
fn a_limit_before_anything_is_found_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json");
    let more = ["--time-limit", "1ms", "-o", plan.to_str().unwrap()];
    let run = planner(&[&LONG[..], &more].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["search"]["stop_reason"], "time_limit");
    assert_eq!(report["plans"], serde_json::json!([]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a file without a plan");
    let run = planner(&["search", LONG[1], "--gpus", "131072", "--time-limit", "1ms"]);
    assert!(run.stdout.contains("nothing found: the time limit was reached"), "{run:?}");
    assert!(run.stdout.contains("hint: a longer `--time-limit`"), "{run:?}");
}

/// After so long the command listens to interrupts, also on a machine that is busy.
const STARTED: Duration = Duration::from_millis(150);

/// What is asked in addition to the plans says so too, and nothing that was not looked at is denied.
#[test]
fn answers_that_are_cut_short_say_so() {
    let asked = ["search", LONG[1], "--gpus", "131072", "--max-seq-len", "--quiet"];
    let cut = planner(&[&asked[..], &["--time-limit", "1ms"]].concat());
    assert!(cut.stdout.contains("none is found to fit"), "{cut:?}");
    assert!(cut.stdout.contains("the search stopped before all of that was looked at"), "{cut:?}");
    let json = planner(&[&asked[..], &["--time-limit", "1ms", "--format", "json"]].concat());
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["is_cut_short"], true);
    let small = ["search", "models/tiny-llama.json", "--gpus", "8", "--max-seq-len", "--quiet"];
    let whole = planner(&[&small[..], &["--format", "json"]].concat()).json();
    assert!(whole.get("is_cut_short").is_none(), "{whole}");
}

/// After how many milliseconds a search is interrupted: the first that finds it with plans and with work left will do.
const WAITS: [u64; 6] = [250, 500, 1000, 2000, 4000, 8000];

/// Number of attempts to interrupt a second time.
const MOST_TRIES: u32 = 20;

/// Presses Ctrl-C.
fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.expect("`kill` is there").success(), "the command has ended by itself");
}

/// Starts the long search with a plan to be written, and interrupts it after so long, so many times.
fn interrupted(after: Duration, times: u32) -> (std::process::Output, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json");
    let child = command(&[&LONG[..], &["-o", plan.to_str().unwrap()]].concat()).spawn().unwrap();
    // A process that has only just begun does not listen yet.
    thread::sleep(STARTED);
    for _ in 0..times {
        thread::sleep(after);
        interrupt(&child);
    }
    (child.wait_with_output().unwrap(), folder)
}

#[cfg(unix)]
#[test]
fn what_was_found_before_an_interrupt_is_printed_and_kept() {
    // A busy machine takes longer to find something, and a fast one is done sooner.
    let mut tries = WAITS.iter().map(|millis| interrupted(Duration::from_millis(*millis), 1));
    let found = tries.find_map(|(output, folder)| {
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        let is_interrupted = report["search"]["stop_reason"] == "interrupted";
        (output.status.success() && is_interrupted).then_some((report, folder))
    });
    let (report, folder) = found.expect("a search that has found something is interrupted");
    let search = &report["search"];
    assert!(search["open"].as_u64() > Some(0), "{search}");
    let best = report["plans"][0]["step_time_seconds"].as_f64().unwrap();
    // A thousand plans are asked for, so that the search may be past its best one.
    assert!(search["least_left_seconds"].as_f64() > Some(0.0), "{search}");
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let plan = folder.path().join("plan.json");
    let again = planner(&["simulate", plan.to_str().unwrap(), "--format", "json"]).json();
    let time = again["step_time_seconds"].as_f64().unwrap();
    assert!((time - best).abs() < 1e-9, "{time} of {best}");
}

#[cfg(unix)]
#[test]
fn a_second_interrupt_ends_at_once_and_leaves_no_file() {
    // The first one ends the search too, and sometimes before the second is there.
    let ends_at_once = |_| {
        let (output, folder) = interrupted(Duration::from_millis(1), 40);
        let code = output.status.code();
        assert!(matches!(code, Some(130 | 1)), "{output:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        code == Some(130)
    };
    assert!((0..MOST_TRIES).any(ends_at_once), "no second interrupt was heard");
}
