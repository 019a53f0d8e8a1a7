//! Help, completions, and output as a terminal or a pipe takes it.

use std::fs;

use crate::cli::{command, planner, root};

#[test]
fn completions_are_for_a_shell() {
    for (shell, start) in
        [("bash", "_planner() {"), ("zsh", "#compdef planner"), ("fish", "# Print")]
    {
        let run = planner(&["completions", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert!(run.stdout.starts_with(start), "{shell}: {}", &run.stdout[..80]);
        for name in ["evaluate", "gb200-nvl72", "megatron-core", "interleaved-1f1b"] {
            assert!(run.stdout.contains(name), "{shell}: no {name}");
        }
    }
    assert!(planner(&["completions", "bash"]).stdout.contains("llama-3.1-405b"));
}

/// `planner .. | head -1`: the reader goes, and that is no error.
#[test]
fn a_reader_may_go_early() {
    for args in [
        &["list", "clusters", "--format", "json"][..],
        &["list", "models"],
        &["completions", "zsh"],
        &["inspect", "models/llama-3.1-8b"],
        &["search", "models/llama-3.1-8b", "--gpus", "8"],
        &["--help"],
        &["search", "--help"],
        &["--version"],
    ] {
        let mut child = command(args).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn tables_read_well_in_100_columns() {
    for args in [
        &["search", "models/llama-3.1-8b", "--gpus", "8", "--top", "10"][..],
        &["inspect", "models/deepseek-v3"],
        &["list", "clusters"],
        &["list", "models"],
        &["list", "schedules"],
        &["--help"],
        &["search", "--help"],
        &["evaluate", "--help"],
        &["explain", "--help"],
    ] {
        let run = planner(args);
        for line in run.stdout.lines().filter(|line| !line.starts_with("again: ")) {
            assert!(
                line.chars().count() <= 100,
                "{args:?}: {} columns:\n{line}",
                line.chars().count()
            );
        }
    }
}

#[test]
fn the_version_is_the_package_s() {
    let run = planner(&["--version"]);
    assert_eq!(run.stdout, format!("planner {}\n", env!("CARGO_PKG_VERSION")));
}

/// The help of each command has examples, and those work, one after the other.
#[test]
fn examples_of_helps_work() {
    // What needs files of other tools, the executor, or minutes.
    let left_out = ["import", "lint", "calibrate", "validate", "run", "export"];
    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("models/tiny-llama.json"), folder.path().join("config.json")).unwrap();
    let mut examples = Vec::new();
    for name in COMMANDS {
        let help = planner(&[name, "--help"]).stdout;
        let (_, after) = help.split_once("\nExample").unwrap_or_else(|| panic!("{name} has none"));
        let lines =
            after.lines().skip(1).map(str::trim).filter(|line| line.starts_with("planner "));
        assert!(lines.clone().count() > 0, "{name}: {after}");
        if !left_out.contains(&name) {
            examples.extend(lines.map(str::to_owned));
        }
    }
    // Those that write what others read go first.
    examples.sort_by_key(|line| !line.ends_with("-o plan.json"));
    for line in examples {
        let line = line.replace("path/to/config.json", "config.json");
        let args: Vec<&str> = line.split(' ').skip(1).collect();
        let output = command(&args).current_dir(folder.path()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{line}: {stderr}");
    }
}

const COMMANDS: [&str; 18] = [
    "search",
    "evaluate",
    "compare",
    "sweep",
    "explain",
    "simulate",
    "run",
    "export",
    "import",
    "lint",
    "chart",
    "collective",
    "schedule",
    "validate",
    "calibrate",
    "inspect",
    "list",
    "systems",
];
