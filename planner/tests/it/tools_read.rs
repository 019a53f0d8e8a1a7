//! Settings of other tools that people have: what is read of them, and that what is not is named.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::{Run, planner};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases/read")
}

/// Cases of `read.txt`: a line `$ FILE MODEL ARGS`, and what is printed for it.
pub(crate) fn cases() -> Vec<(Vec<String>, String)> {
    let text = fs::read_to_string(folder().with_extension("txt")).unwrap();
    let cases = text.split("$ ").filter(|it| !it.trim().is_empty());
    let case = |case: &str| {
        let (first, printed) = case.split_once('\n').unwrap();
        (first.split(' ').map(str::to_owned).collect(), printed.to_owned())
    };
    cases.map(case).collect()
}

fn import(file: &Path, args: &[String]) -> Run {
    let file = file.to_str().unwrap();
    let mut all = vec!["import", file, "--model"];
    all.extend(args.iter().map(String::as_str));
    planner(&all)
}

/// Layout and batch, and what is no part of them.
fn printed(run: &Run) -> String {
    let mut text = String::new();
    for line in run.stdout.lines().filter(|it| !it.starts_with("predicted")) {
        let _ = writeln!(text, "{line}");
    }
    for line in run.stderr.lines() {
        let line = line.split_once("`: ").map_or(line, |it| it.1);
        let line = line
            .strip_prefix("not part of the plan: ")
            .map_or(line.to_owned(), |it| format!("- {it}"));
        let _ = writeln!(text, "{line}");
    }
    text
}

/// `READ_UPDATE=1` writes what is printed now.
#[test]
fn files_of_many_tools_are_read() {
    let mut now = String::new();
    let mut expected = String::new();
    for (words, printed_before) in cases() {
        let run = import(&folder().join(&words[0]), &words[1..]);
        let _ = write!(now, "$ {}\n{}", words.join(" "), printed(&run));
        let _ = write!(expected, "$ {}\n{printed_before}", words.join(" "));
    }
    if std::env::var_os("READ_UPDATE").is_some() {
        fs::write(folder().with_extension("txt"), &now).unwrap();
    }
    pretty_assertions(&expected, &now);
    let all = fs::read_dir(folder()).unwrap().count();
    assert_eq!(cases().len(), all, "every file has a case");
}

fn pretty_assertions(expected: &str, now: &str) {
    for (before, after) in expected.split("$ ").zip(now.split("$ ")) {
        assert_eq!(before, after);
    }
}

/// The text with a setting that no tool has.
fn with_unknown(name: &str, text: &str) -> String {
    match name.rsplit('.').next() {
        Some("sh") => {
            let is_hydra = text.contains("actor_rollout_ref.");
            let more = if is_hydra { "zeugma.of_ranks=3" } else { "--zeugma-of-ranks 3" };
            format!("{} {more}\n", text.trim_end())
        }
        Some("json") => text.replacen('{', "{\"zeugma_of_ranks\": 3,", 1),
        Some("toml") => format!("{text}\n[zeugma]\nof_ranks = 3\n"),
        _ if name.starts_with("primus") => {
            text.replace("    overrides:\n", "    overrides:\n      zeugma_of_ranks: 3\n")
        }
        _ => format!("{text}\nzeugma_of_ranks: 3\n"),
    }
}

#[test]
fn a_setting_that_no_table_has_is_named() {
    let work = tempfile::tempdir().unwrap();
    // Files that others name.
    for file in fs::read_dir(folder()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), work.path().join(file.file_name())).unwrap();
    }
    for (words, printed) in cases() {
        // Of files that are refused, no more is read.
        if !printed.contains("micro-batches, recompute") {
            continue;
        }
        let text = fs::read_to_string(folder().join(&words[0])).unwrap();
        let file = work.path().join(&words[0]);
        fs::write(&file, with_unknown(&words[0], &text)).unwrap();
        let run = import(&file, &words[1..]);
        assert!(run.stderr.contains("zeugma"), "{words:?} {run:?}");
        assert_eq!(run.code, Some(0), "{words:?} {run:?}");
    }
}
