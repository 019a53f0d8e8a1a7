//! Processes that end well, that fail, that hang, and that go on for as long as they are given lines.

use std::process::Command;
use std::time::Duration;

use super::{Ended, Failure, run, run_by_turns};

/// Longer than any of these processes takes.
const LONG: Duration = Duration::from_mins(1);

/// Too short for processes that hang.
const SHORT: Duration = Duration::from_millis(300);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn ended(scripts: &[&str], limit: Duration) -> Ended {
    let commands = scripts.iter().map(|script| shell(script)).collect();
    run(commands, limit, |_| ()).expect("a shell starts")
}

#[test]
fn lines_of_the_first_are_heard() {
    let ended = ended(&["echo one; echo two", "echo three"], LONG);
    assert_eq!((ended.lines, ended.failure), (vec!["one".to_owned(), "two".to_owned()], None));
}

#[test]
fn what_fails_says_why() {
    for (script, said) in [
        (
            "echo 'error: no driver' >&2; echo 'hint: install it' >&2; exit 2",
            "no driver\nhint: install it",
        ),
        ("echo 'error: the driver says: error: 700' >&2; exit 2", "the driver says: error: 700"),
        ("echo at work >&2; echo lost >&2; exit 3", "it ended with code 3: lost"),
        ("exit 101", "it ended with code 101"),
        ("kill -9 $$", "it was ended by a signal"),
    ] {
        let failure = ended(&[script], LONG).failure.expect("it fails");
        assert_eq!(failure.message(), said, "{script}");
    }
}

/// Of several failed processes, the one that printed its error is reported.
#[test]
fn one_that_fails_ends_the_others_and_says_why() {
    let ended = ended(&["exit 3", "echo 'error: lost' >&2; exit 2"], LONG);
    assert_eq!(ended.failure.expect("they fail").message(), "lost");
}

#[test]
fn what_hangs_is_ended_and_what_it_said_remains() {
    let ended = ended(&["echo one; exec sleep 600"], SHORT);
    assert_eq!((ended.lines, ended.failure), (vec!["one".to_owned()], Some(Failure::TooLong)));
}

/// Each process takes a turn for every line that the first writes, until no more are given.
#[test]
fn turns_end_for_all_alike() {
    let script = "while read -r _; do sleep 0.05; echo turn; done; echo end";
    let ended = run_by_turns(vec![shell(script), shell(script)], LONG, SHORT, |_| ());
    let Ended { lines, failure } = ended.expect("a shell starts");
    assert_eq!(failure, None);
    assert!(lines.len() > 1, "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("end"));
}
