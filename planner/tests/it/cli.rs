//! Whole runs of the `planner` command.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Interval at which a run is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Limit of a run, unless a test gives it longer.
const USUAL_LIMIT: Duration = Duration::from_secs(30);

/// Exit code and output of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The result, of a run that found something.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).expect("JSON on stdout")
    }

    /// Exit code, stdout and stderr as a person sees them.
    pub(crate) fn transcript(&self) -> String {
        let Self { code, stdout, stderr } = self;
        let code = code.expect("an exit code");
        format!("exit {code}\n--- stdout\n{stdout}--- stderr\n{stderr}")
    }
}

/// The repository's root, in which the command runs.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The command, not yet started.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_planner"));
    command.args(args).current_dir(root()).env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command to its end, which must come in bounded time.
pub(crate) fn planner(args: &[&str]) -> Run {
    planner_within(args, USUAL_LIMIT)
}

/// The same with the words of a line.
pub(crate) fn run(line: &str) -> Run {
    planner(&line.split_whitespace().collect::<Vec<_>>())
}

/// The plan that `planner evaluate` makes of the words of a line.
pub(crate) fn evaluated(line: &str) -> Value {
    run(&format!("evaluate --format json -q {line}")).json()["plans"][0].clone()
}

/// The same as [`planner`], which may take so long.
pub(crate) fn planner_within(args: &[&str], limit: Duration) -> Run {
    let looks = limit.as_millis() / LOOK.as_millis();
    let mut child = command(args).spawn().expect("the command starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut stderr = child.stderr.take().expect("a pipe");
    let read = |pipe: &mut dyn Read| {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).expect("output");
        String::from_utf8(text).expect("output is text")
    };
    thread::scope(|scope| {
        let stdout = scope.spawn(|| read(&mut stdout));
        let stderr = scope.spawn(|| read(&mut stderr));
        let status = (0..looks).find_map(|_| {
            thread::sleep(LOOK);
            child.try_wait().expect("a status")
        });
        if status.is_none() {
            child.kill().expect("a child that is killed");
        }
        let run = Run {
            code: status.and_then(|status| status.code()),
            stdout: stdout.join().expect("stdout"),
            stderr: stderr.join().expect("stderr"),
        };
        assert!(status.is_some(), "`planner {}` does not end: {run:?}", args.join(" "));
        run
    })
}
