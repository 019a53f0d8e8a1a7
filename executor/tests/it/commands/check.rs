//! `executor check`.

use std::collections::BTreeSet;
use std::fs;

use ir::cluster::{Architecture, Cluster, Precision};
use serde_json::Value;

use super::{Run, RunFolder};
use crate::runs_slow_tests;

/// The parts of a report.
fn sections(report: &Value) -> Vec<&str> {
    let sections = report["sections"].as_array().unwrap();
    sections.iter().map(|section| section["name"].as_str().unwrap()).collect()
}

/// Verdicts of a report's findings, with what was found.
fn findings(report: &Value) -> Vec<(&str, &Value)> {
    let sections = report["sections"].as_array().unwrap().iter();
    let all = sections.flat_map(|section| section["findings"].as_array().unwrap());
    all.map(|finding| (finding["verdict"].as_str().unwrap(), finding)).collect()
}

fn read(place: &RunFolder, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path(name)).unwrap()).unwrap()
}

/// What was said, for a message.
fn output(run: &Run) -> String {
    format!("{}\n{}", run.stdout, run.stderr)
}

#[test]
fn kernels_of_the_cpu_are_right() {
    let place = RunFolder::new();
    let run = place.run("check --only kernels --format json --report report.json");
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", output(&run));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report, read(&place, "report.json"));
    assert_eq!(sections(&report), ["device", "kernels"]);
    assert_eq!(report["has_passed"], true);
    let findings = findings(&report);
    assert_eq!(findings.len() as u64, report["num_passed"].as_u64().unwrap());
    assert!(findings.iter().all(|(verdict, _)| *verdict == "pass"), "{findings:?}");
    let names: BTreeSet<&str> =
        findings.iter().map(|(_, finding)| finding["name"].as_str().unwrap()).collect();
    for name in [
        "processor",
        "RMS norm, rows of 1024",
        "AdamW, rows of 1003",
        "attention, sinks",
        "attention, soft cap",
    ] {
        assert!(names.contains(name), "no `{name}` in {names:?}");
    }
    assert_eq!(place.listing().len(), 1);
}

/// A processor has not the memory of an H100, and that is a failure: exit code 1, with what to do.
#[test]
fn what_is_far_from_a_data_sheet_fails() {
    let place = RunFolder::new();
    let sheet = concat!(env!("CARGO_MANIFEST_DIR"), "/../cost-models/clusters/h100.json");
    let run = place.run(&format!("check --only speeds --base {sheet}"));
    assert_eq!(run.code, Some(1), "{}", output(&run));
    for words in ["device (", "speeds (", "FAIL", "% of data sheet", "hint: ", "failed"] {
        assert!(run.stdout.contains(words), "no `{words}` in {}", run.stdout);
    }
}

/// What has no time left is skipped, which is no failure, and nothing is written that was not measured.
#[test]
fn time_runs_out() {
    let place = RunFolder::new();
    let run = place.run("check --minutes 0.1 --only layouts,kernels --format json");
    assert_eq!(run.code, Some(0), "{}", output(&run));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(sections(&report), ["device", "kernels", "layouts"]);
    for (verdict, finding) in findings(&report) {
        assert!(verdict == "pass" || finding["said"] == "no time was left", "{finding}");
    }
}

#[test]
fn what_cannot_be_checked_is_said_at_once() {
    let place = RunFolder::new();
    for (args, words) in [
        ("--minutes 0", &["--minutes", "from 0.1"][..]),
        ("--minutes nan", &["--minutes", "from 0.1"]),
        ("--only kernel", &["kernel", "layouts"]),
        ("-o no/mine.json", &["there is no folder `no`"]),
        ("--report .", &["it is a folder"]),
        ("--base missing.json", &["missing.json", "No such file"]),
        ("--cluster-name mine", &["--output"]),
        ("--backend tpu", &["tpu", "cpu, cuda, wgpu"]),
    ] {
        place.refuses(&format!("check {args}"), words);
    }
}

/// Where there is no GPU, or the program was built without it, that is the only thing said.
#[test]
fn a_device_that_is_not_there() {
    let place = RunFolder::new();
    for backend in ["cuda", "wgpu"] {
        let run = place.run(&format!("check --minutes 0.1 --only device --backend {backend}"));
        if run.code == Some(2) {
            assert_eq!(run.stdout, "");
            assert!(run.stderr.starts_with("error: "), "{}", output(&run));
            assert!(
                run.stderr.contains("hint: ") && !run.stderr.contains("panicked"),
                "{}",
                output(&run)
            );
        }
    }
}

/// All of it, with a cluster file.
#[test]
fn the_whole_of_a_machine() {
    if !runs_slow_tests() {
        return;
    }
    let place = RunFolder::new();
    let args = "check --minutes 3 --format json -o mine.json --cluster-name mine";
    let run = place.run(args);
    assert_eq!(run.code, Some(0), "{}", output(&run));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["num_failed"], 0, "{report:#}");
    assert_eq!(sections(&report).len(), 8);
    let text = fs::read_to_string(place.path("mine.json")).unwrap();
    let cluster = Cluster::from_json(&text).unwrap();
    assert_eq!((cluster.name.as_str(), cluster.gpu.architecture), ("mine", Architecture::Cpu));
    assert!(cluster.gpu.peak[&Precision::Fp32].get() > 1e8, "{:?}", cluster.gpu.peak);
    assert!(cluster.gpu.measured.is_some());
}
