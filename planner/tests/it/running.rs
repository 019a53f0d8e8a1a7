//! `planner run`, with a script in the executor's place.

#![cfg(unix)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::bad_input::Workplace;
use crate::cli::planner;

/// Says what it was given, copies stdin, and exits as nothing else does.
const SCRIPT: &str = r#"#!/bin/sh
printf '%s:' "$NAME" "$@"
IFS= read -r line
printf '|%s' "$line"
echo complaint >&2
exit 7
"#;

/// A folder with the command itself, a plan, and folders for the path.
struct Bench {
    place: Workplace,
    plan: String,
}

impl Bench {
    fn new() -> Self {
        let place = Workplace::new();
        let plan = place.path("the plan.json");
        let model = place.path("model.json");
        let search = ["search", &model, "--gpus", "2", "--quiet", "-o", &plan];
        assert_eq!(planner(&search).code, Some(0));
        for folder in ["bin", "first", "second"] {
            fs::create_dir(place.path(folder)).unwrap();
        }
        let bench = Self { place, plan };
        // A file that another process has open for writing cannot be started, and tests that start theirs
        // at the same time would have it open: so a process of its own writes it.
        let to = bench.path("bin/planner");
        let from = env!("CARGO_BIN_EXE_planner");
        shell(r#"ln "$0" "$1" 2>/dev/null || cp "$0" "$1""#, &[from, to.to_str().unwrap()]);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(self.place.path(name))
    }

    /// A script called `executor` in a folder.
    fn executor(&self, folder: &str, script: &str) {
        let file = self.path(folder).join("executor");
        shell(r#"printf '%s' "$0" > "$1"; chmod 755 "$1""#, &[script, file.to_str().unwrap()]);
    }

    /// Runs the command with two folders on the path, and `input` on stdin.
    fn run(&self, args: &[&str], input: &str) -> Output {
        let path = std::env::join_paths([self.path("first"), self.path("second")]).unwrap();
        let mut child = Command::new(self.path("bin/planner"))
            .arg("run")
            .args(args)
            .env("PATH", path)
            .env("NAME", "told")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Where nothing reads it, the pipe is closed.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }
}

fn shell(script: &str, args: &[&str]) {
    let status = Command::new("/bin/sh").arg("-c").arg(script).args(args).status().unwrap();
    assert!(status.success(), "{script}");
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_executor_gets_plan_and_streams() {
    let bench = Bench::new();
    bench.executor("second", SCRIPT);
    // What cannot be started is passed over.
    fs::create_dir(bench.path("first/executor")).unwrap();
    fs::write(bench.path("bin/executor"), SCRIPT).unwrap();
    let plan = bench.plan.as_str();
    for more in [&[][..], &["--steps", "3"], &["-v", "a b", "--data", "--", "-x=*", ""]] {
        let run = bench.run(&[&[plan], more].concat(), "some input");
        assert_eq!(run.status.code(), Some(7), "{run:?}");
        let told = [&["told", "run", plan], more].concat().join(":");
        assert_eq!(text(&run.stdout), format!("{told}:|some input"));
        assert_eq!(text(&run.stderr), "complaint\n");
    }
}

#[test]
fn an_executor_beside_the_planner_comes_first() {
    let bench = Bench::new();
    bench.executor("bin", "#!/bin/sh\necho beside\n");
    bench.executor("first", "#!/bin/sh\necho on the path\n");
    let run = bench.run(&[&bench.plan], "");
    assert_eq!((run.status.code(), text(&run.stdout)), (Some(0), "beside\n"), "{run:?}");
    fs::remove_file(bench.path("bin/executor")).unwrap();
    let run = bench.run(&[&bench.plan], "");
    assert_eq!((run.status.code(), text(&run.stdout)), (Some(0), "on the path\n"), "{run:?}");
}

#[test]
fn without_an_executor_it_is_said_how_to_build_one() {
    let bench = Bench::new();
    let run = bench.run(&[&bench.plan, "--steps", "3"], "");
    assert_eq!((run.status.code(), text(&run.stdout)), (Some(2), ""), "{run:?}");
    assert_eq!(
        text(&run.stderr),
        "error: `executor` is neither beside `planner` nor on the path\n\
         hint: `cargo install --path executor` installs it\n"
    );
}

/// A plan that is broken is refused before anything is started.
#[test]
fn broken_plans_are_not_run() {
    let bench = Bench::new();
    let marker = bench.path("started");
    bench.executor("bin", &format!("#!/bin/sh\n: > '{}'\n", marker.display()));
    let whole = fs::read_to_string(&bench.plan).unwrap();
    let edited = whole.replacen("\"num_blocks\": ", "\"num_blocks\": 1", 1);
    for (content, words) in [
        (&whole[..whole.len() / 2], "the file ends here"),
        (edited.as_str(), "contradicts itself"),
        ("{}", "is missing"),
    ] {
        let bad = bench.place.write("bad.json", content);
        let run = bench.run(&[&bad, "--steps", "3"], "");
        assert_eq!((run.status.code(), text(&run.stdout)), (Some(2), ""), "{run:?}");
        let stderr = text(&run.stderr);
        assert!(stderr.starts_with("error: `") && stderr.contains(words), "{stderr}");
    }
    let once = bench.run(&["/dev/stdin"], &whole);
    assert_eq!(once.status.code(), Some(2), "{once:?}");
    assert!(text(&once.stderr).contains("hint: write the plan to a file"), "{once:?}");
    assert!(!Path::new(&marker).exists());
    bench.run(&[&bench.plan], "");
    assert!(marker.exists(), "the script works");
}
