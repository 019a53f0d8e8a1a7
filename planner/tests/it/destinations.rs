//! Files that are written behave as files of established tools do: streams, links, modes, what may not be written.
#![cfg(unix)]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::bad_input::Workplace;
use crate::cli::{command, planner};

/// Runs a search for the workplace's model that writes its plan to `output`.
fn search_to(place: &Workplace, output: impl AsRef<OsStr>) -> Output {
    let mut search =
        command(&["search", &place.path("model.json"), "--gpus", "2", "--quiet", "-o"]);
    search.arg(output).current_dir(place.path("")).output().unwrap()
}

fn is_plan(text: &[u8]) -> bool {
    serde_json::from_slice::<Value>(text).is_ok_and(|plan| plan["layout"].is_object())
}

fn mode(path: &str) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_dash_is_standard_output_and_nothing_else_is_printed() {
    let place = Workplace::new();
    let run = search_to(&place, "-");
    assert!(run.status.success() && is_plan(&run.stdout), "{run:?}");
    assert!(!Path::new(&place.path("-")).exists());
    // By its name it is a device like others, and what is printed follows; so where it is a file.
    let redirected = place.path("redirected.json");
    let file = fs::File::create(&redirected).unwrap();
    let mut search = command(&["search", &place.path("model.json"), "--gpus", "2", "--quiet"]);
    let status = search.args(["-o", "/dev/stdout"]).stdout(file).status().unwrap();
    assert!(status.success());
    let both = [search_to(&place, "/dev/stdout").stdout, fs::read(redirected).unwrap()];
    for text in both {
        let mut values = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
        assert!(values.next().unwrap().unwrap()["layout"].is_object());
        let table = String::from_utf8_lossy(&text[values.byte_offset()..]).into_owned();
        assert!(table.contains("wrote /dev/stdout"), "{table}");
    }

    fs::write(place.path("plan.json"), search_to(&place, "-").stdout).unwrap();
    let plan = place.path("plan.json");
    let stdout = |args: &[&str]| {
        let run = planner(args);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}: {run:?}");
        run.stdout
    };
    let trace: Value = serde_json::from_str(&stdout(&["simulate", &plan, "-o", "-"])).unwrap();
    assert!(trace["traceEvents"].is_array());
    for args in [
        &["chart", &plan, "-o", "-"][..],
        &["collective", "all-gather", "-o", "-"],
        &["schedule", "1f1b", "--stages", "2", "--micro-batches", "4", "-o", "-"],
        &["sweep", &place.path("model.json"), "--over", "gpus=1,2", "-o", "-"],
    ] {
        let drawn = stdout(args);
        assert!(
            drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"),
            "{args:?}: {drawn}"
        );
    }
    let printed = stdout(&["export", &plan, "--to", "megatron"]);
    assert_eq!(stdout(&["export", &plan, "--to", "megatron", "-o", "-"]), printed);
}

#[test]
fn a_dash_is_standard_input() {
    let place = Workplace::new();
    let with_stdin = |args: &[&str], text: &[u8]| {
        let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
        // What is refused is not read to its end.
        let _ = child.stdin.take().unwrap().write_all(text);
        child.wait_with_output().unwrap()
    };
    let model = fs::read(place.path("model.json")).unwrap();
    let search = ["search", "-", "--gpus", "2", "--quiet", "-o", "-"];
    let found = with_stdin(&search, &model);
    assert!(found.status.success() && is_plan(&found.stdout), "{found:?}");
    let plan: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(plan["model"]["name"], "model");
    for args in [&["explain", "-"][..], &["simulate", "-"], &["chart", "-", "-o", "-"]] {
        let run = with_stdin(args, &found.stdout);
        assert!(run.status.success(), "{args:?}: {run:?}");
    }
    let twice = with_stdin(&["search", "-", "--gpus", "2", "--cluster", "-"], &model);
    assert_eq!(twice.status.code(), Some(2), "{twice:?}");
    let told = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(told.contains("standard input") && told.contains("only once"), "{told}");
    let run = with_stdin(&["run", "-"], &found.stdout);
    assert!(String::from_utf8_lossy(&run.stderr).contains("can be read only once"), "{run:?}");
}

#[test]
fn links_are_followed_and_stay() {
    let place = Workplace::new();
    fs::create_dir(place.path("folder")).unwrap();
    place.write("folder/old.json", "{}");
    symlink("folder/old.json", place.path("to-file.json")).unwrap();
    symlink("folder/new.json", place.path("to-nothing.json")).unwrap();
    symlink("to-nothing.json", place.path("to-link.json")).unwrap();
    for (link, target) in [
        ("to-file.json", "folder/old.json"),
        ("to-link.json", "folder/new.json"),
        ("to-nothing.json", "folder/new.json"),
    ] {
        let run = search_to(&place, link);
        assert!(run.status.success(), "{run:?}");
        assert!(fs::symlink_metadata(place.path(link)).unwrap().is_symlink(), "{link}");
        assert!(is_plan(&fs::read(place.path(target)).unwrap()), "{target}");
    }
    symlink("itself.json", place.path("itself.json")).unwrap();
    assert_eq!(search_to(&place, "itself.json").status.code(), Some(2));
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode_and_its_other_names() {
    let place = Workplace::new();
    for bits in [0o600, 0o640, 0o755, 0o666] {
        let path = place.write("plan.json", "{}");
        fs::set_permissions(&path, Permissions::from_mode(bits)).unwrap();
        assert!(search_to(&place, &path).status.success());
        assert_eq!(mode(&path), bits);
        assert!(is_plan(&fs::read(&path).unwrap()));
    }
    let one = place.write("one.json", "{}");
    fs::hard_link(&one, place.path("other.json")).unwrap();
    assert!(search_to(&place, &one).status.success());
    assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);
    assert!(is_plan(&fs::read(place.path("other.json")).unwrap()));
}

#[test]
fn a_file_that_is_read_only_stays_as_it_is() {
    let place = Workplace::new();
    let path = place.write("plan.json", "mine");
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    place.fails(
        "search {}/model.json --gpus 2 -o {}/plan.json",
        &["plan.json", "read-only", "hint:"],
    );
    assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"mine".to_vec(), 0o444));
}

/// Names of files are bytes.
#[test]
fn names_that_are_no_text_are_names() {
    let place = Workplace::new();
    let name = OsStr::from_bytes(b"plan-\xff.json");
    let run = search_to(&place, name);
    assert!(run.status.success(), "{run:?}");
    let text = fs::read(Path::new(&place.path("")).join(name)).unwrap();
    let plan: Value = serde_json::from_slice(&text).unwrap();
    let again = plan["provenance"]["command"].as_str().unwrap();
    assert!(again.ends_with(r"-o $'plan-\xff.json'"), "{again}");
    // A shell takes it for the same arguments.
    let echo = again.replacen("planner", "printf '%s\\n'", 1);
    if let Ok(shown) = Command::new("bash").args(["-c", &echo]).output() {
        assert!(shown.stdout.ends_with(b"plan-\xff.json\n"), "{shown:?}");
    }
}

/// What ends the program in the midst of a file leaves the file whole or as it was, and nothing next to it.
#[test]
fn a_signal_leaves_no_file_that_is_half_written() {
    let place = Workplace::new();
    let args = ["schedule", "zb-h1", "--stages", "8", "--micro-batches", "4096", "--format", "csv"];
    for (signal, millis) in ["-TERM", "-INT", "-HUP"]
        .into_iter()
        .flat_map(|signal| [50, 150, 250, 350, 450, 600, 800].map(|millis| (signal, millis)))
    {
        let output = place.path("drawn.json");
        let _ = fs::remove_file(&output);
        let mut child = command(&args).args(["-o", &output]).stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(millis));
        let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
        child.wait().unwrap();
        let names: Vec<_> = fs::read_dir(place.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "model.json")
            .collect();
        assert!(
            names.is_empty() || names == ["drawn.json"],
            "{signal} after {millis} ms: {names:?}"
        );
        if let Ok(text) = fs::read_to_string(&output) {
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{signal} after {millis} ms");
        }
    }
}
