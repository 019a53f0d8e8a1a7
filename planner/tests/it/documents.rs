//! Every command that README and the book show is run, page by page, in a folder with nothing in it, and prints what
//! they say it prints. `UPDATE_DOCUMENTS=1` writes what it prints.
//!
//! A block of ` ```console ` holds commands, after `$ `, and `> ` where they go on, each with what it prints, or
//! nothing where that is not shown. A line `...` stands for all lines that follow.

#![expect(clippy::print_stdout, reason = "a test that skips something says so")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cli::root;

/// Programs that are not run here, and what runs them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cargo", "`.ci/run` builds and tests"),
    ("executor/gpu/first-light", "`.ci/steps/gpu`, and a machine with a GPU"),
    ("git", "the repository is here"),
    ("jupyter", "`.ci/steps/notebooks`"),
    ("pip", "`.ci/steps/wheel`"),
    ("sbatch", "`.ci/steps/slurm`"),
];

/// The rest of an output.
const REST: &str = "...";

#[test]
fn commands_in_documents_print_what_is_shown() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page that is there");
        let name = page.strip_prefix(root()).expect("a page of the repository").to_owned();
        let printed = run_page(&text, &name);
        if env::var_os("UPDATE_DOCUMENTS").is_some() {
            fs::write(&page, printed).expect("a page that can be written");
        } else if let Some((number, (shown, found))) =
            text.lines().zip(printed.lines()).enumerate().find(|(_, (shown, found))| shown != found)
        {
            wrong.push(format!("{}:{}: {shown}\n  prints: {found}", name.display(), number + 1));
        } else if text != printed {
            wrong.push(format!("{}: a command prints less or more", name.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nhint: UPDATE_DOCUMENTS=1 cargo test -p planner --test it documents",
        wrong.join("\n")
    );
}

/// README and the book's pages.
fn pages() -> Vec<PathBuf> {
    let listed = fs::read_dir(root().join("docs/src")).expect("the book");
    let mut pages: Vec<PathBuf> = listed
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect();
    pages.sort();
    pages.insert(0, root().join("README.md"));
    pages
}

/// A page with what its commands print now.
fn run_page(text: &str, page: &Path) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut lines = text.lines().peekable();
    let mut written = String::new();
    let mut missing = None;
    while let Some(line) = lines.next() {
        push(&mut written, line);
        if line != "```console" {
            continue;
        }
        while let Some(line) = lines.next_if(|line| *line != "```") {
            let Some(first) = line.strip_prefix("$ ") else {
                panic!("{}: a console block begins with `$ `, not `{line}`", page.display())
            };
            push(&mut written, line);
            let mut command = first.to_owned();
            while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
                push(&mut written, more);
                command = format!("{command}\n{}", &more[2..]);
            }
            let is_shown = |line: &&str| *line != "```" && !line.starts_with("$ ");
            let shown: Vec<&str> = std::iter::from_fn(|| lines.next_if(is_shown)).collect();
            if is_run(&command, &mut missing) {
                written += &as_shown(&shown, &run(&command, folder.path(), page, &shown));
            } else {
                for line in shown {
                    push(&mut written, line);
                }
            }
        }
    }
    if let Some(program) = missing {
        println!("{}: skipped from where it needs `{program}`, which is not built", page.display());
    }
    written
}

fn push(text: &mut String, line: &str) {
    *text += line;
    text.push('\n');
}

/// Whether a command's program is run here. One that is built beside, and is not, is noted, and what follows it on the
/// page may need what it writes.
fn is_run(command: &str, missing: &mut Option<&str>) -> bool {
    let of = command.split_whitespace().find(|word| !word.contains('=')).expect("a command");
    if ELSEWHERE.iter().any(|(program, _)| *program == of) {
        return false;
    }
    let needs_executor = of == "executor" || command.starts_with("planner run");
    if needs_executor && !built().join("executor").exists() {
        *missing = Some("executor");
    }
    missing.is_none()
}

/// Where commands are built.
fn built() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_planner")).parent().expect("a folder").to_owned()
}

/// What a command prints, as lines.
fn run(command: &str, folder: &Path, page: &Path, shown: &[&str]) -> Vec<String> {
    let mut path = OsString::from(built());
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .current_dir(folder)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let text = String::from_utf8(output.stdout).expect("output is text");
    // 1 is an answer: nothing fits, or a warning.
    let is_error_shown = shown.first().is_some_and(|line| line.starts_with("error"));
    let expected: &[i32] = if is_error_shown { &[2] } else { &[0, 1] };
    let code = output.status.code().expect("an exit code");
    assert!(expected.contains(&code), "{}: `{command}` exits with {code}:\n{text}", page.display());
    // How long a search takes on this machine is no part of its answer.
    let is_answer = |line: &&str| !line.starts_with("searching for ");
    text.lines().filter(is_answer).map(str::to_owned).collect()
}

/// As much of an output as a page shows.
fn as_shown(shown: &[&str], printed: &[String]) -> String {
    let length = match shown {
        [] => 0,
        [before @ .., REST] => before.len(),
        _ => printed.len(),
    };
    let mut text = String::new();
    for (index, line) in printed.iter().take(length).enumerate() {
        // Times differ from run to run; the page keeps its own.
        let kept = shown.get(index).filter(|shown| without_times(shown) == without_times(line));
        push(&mut text, kept.copied().unwrap_or(line));
    }
    if shown.last() == Some(&REST) {
        push(&mut text, REST);
    }
    text
}

/// A line of a search's counts without the time that it took.
fn without_times(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    if let Some(place) = words.iter().position(|word| ["ms:", "s:"].contains(word)) {
        words.drain(place.saturating_sub(1)..=place);
    }
    words.join(" ")
}
