//! What names have in them that moves a cursor, begins a line, hides or turns text reaches nothing that is shown.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::bad_input::Workplace;
use crate::cli::planner;

/// Clears the screen, begins a line that looks like another, turns what follows, hides, ends a comment of a script, and
/// is a command in one.
const EVIL: &str = "evil\u{1b}[2J\u{9b}31m\r\nerror: forged\n\u{202e}\u{2066}\u{200b}\u{7}\u{7f}\n$(touch hit) `touch hit` '; touch hit; '<script>";

/// Nothing in a text of several lines does anything but show.
fn check_shown(text: &str, of: &str) {
    let is_shown = |c: char| {
        c == '\n' || c == '\t' || !c.is_control() && !"\u{202e}\u{2066}\u{200b}".contains(c)
    };
    let bad: Vec<char> = text.chars().filter(|c| !is_shown(*c)).collect();
    assert!(bad.is_empty(), "{of}: {bad:?} in {text}");
    let forged = text.lines().any(|line| line.starts_with("error: forged"));
    assert!(!forged, "{of}: {text}");
}

#[test]
fn names_are_shown_with_escapes() {
    let place = Workplace::new();
    let mut model: Value =
        serde_json::from_str(&fs::read_to_string(place.path("model.json")).unwrap()).unwrap();
    model["name"] = json!(EVIL);
    let model = place.write("evil.json", model.to_string());
    let clusters = planner(&["list", "clusters", "--format", "json"]).json();
    let mut cluster = clusters[0].clone();
    for pointer in ["/name", "/gpu/name", "/levels/0/name"] {
        *cluster.pointer_mut(pointer).unwrap() = json!(EVIL);
    }
    let cluster = place.write("cluster.json", cluster.to_string());
    let plan = place.path("plan.json");
    let of_plan = ["search", &model, "--gpus", "4", "--cluster", &cluster, "--quiet", "-o", &plan];
    let (svg, html, timeline) = (place.path("a.svg"), place.path("a.html"), place.path("t.json"));
    let bars = place.path("bars.svg");
    for args in [
        &of_plan[..],
        &["search", &model, "--gpus", "4", "--cluster", &cluster, "--format", "json", "--quiet"],
        &["inspect", &model],
        &["inspect", &model, "--format", "json"],
        &["explain", &plan],
        &["explain", &plan, "--format", "json"],
        &["simulate", &plan, "-o", &timeline],
        &["compare", &plan, &plan],
        &["lint", &plan, "--fail-on", "never"],
        &["lint", &plan, "--fail-on", "never", "--format", "json"],
        &["chart", &plan, "-o", &svg],
        &["chart", &plan, "-o", &html],
        &["chart", &plan, "--show", "memory", "-o", &bars],
    ] {
        let run = planner(args);
        assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
        check_shown(&run.stdout, &args.join(" "));
        check_shown(&run.stderr, &args.join(" "));
    }
    let shown = planner(&["inspect", &model]).stdout;
    assert!(shown.contains(r"evil\u{1b}[2J\u{9b}31m\r\nerror: forged\n\u{202e}"), "{shown}");
    for picture in [svg, html, bars] {
        let text = fs::read_to_string(&picture).unwrap();
        check_shown(&text, &picture);
        assert!(!text.contains("'<script>"), "{picture}: {text}");
    }
}

#[test]
fn titles_of_timelines_are_shown_with_escapes() {
    let place = Workplace::new();
    let csv = place.write("order.csv", "0F0,0B0");
    let timeline = place.path("timeline.json");
    assert_eq!(planner(&["schedule", "--from", &csv, "-o", &timeline]).code, Some(0));
    let mut trace: Value = serde_json::from_str(&fs::read_to_string(&timeline).unwrap()).unwrap();
    trace["otherData"]["title"] = json!(EVIL);
    trace["otherData"]["tracks"][0]["name"] = json!(EVIL);
    place.write("timeline.json", trace.to_string());
    for name in ["a.svg", "a.html", "a.json"] {
        let output = place.path(name);
        let run = planner(&["chart", &timeline, "-o", &output]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let text = fs::read_to_string(&output).unwrap();
        // A trace comes back as it was.
        if name == "a.json" {
            continue;
        }
        check_shown(&text, name);
        assert!(!text.contains("'<script>"), "{name}: {text}");
    }
}

#[test]
fn errors_quote_with_escapes() {
    let place = Workplace::new();
    let told = |args: &[&str]| {
        let run = planner(args);
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
        check_shown(&run.stderr, &args.join(" "));
        run.stderr
    };
    let mut model = json!({
        "architecture": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,
    });
    model[EVIL] = json!(1);
    let unknown = place.write("unknown.json", model.to_string());
    assert!(told(&["inspect", &unknown]).contains(r"`evil\u{1b}[2J"));
    for model in
        [json!({"model_type": EVIL}), json!({"architecture": EVIL}), json!({"format": EVIL})]
    {
        let path = place.write("bad.json", model.to_string());
        told(&["inspect", &path]);
    }
    let graph = json!({
        "format": "planner-graph", "version": 1, "name": EVIL,
        "nodes": [{"name": EVIL, "kind": EVIL}], "edges": [{"from": EVIL, "to": "nobody"}],
    });
    told(&["inspect", &place.write("graph.json", graph.to_string())]);
    for (flag, text) in [("--cluster", json!({EVIL: 1})), ("--framework", json!({EVIL: 1}))] {
        let path = place.write("bad.json", text.to_string());
        told(&["search", &place.path("model.json"), "--gpus", "2", flag, &path]);
    }
    told(&["explain", &place.write("bad.json", json!({"version": 1, EVIL: 1}).to_string())]);
    told(&["schedule", "--from", &place.write("bad.csv", EVIL)]);
    let arguments = format!("--tensor-model-parallel-size 2 --{} '{EVIL}'", EVIL.replace(' ', "-"));
    let script = place.write("args.sh", arguments);
    let run = planner(&["import", &script, "--model", &place.path("model.json"), "--gpus", "2"]);
    check_shown(&run.stderr, "import");
    check_shown(&run.stdout, "import");
}

/// Scripts quote what they embed: with a name that is a command they do what they do without.
#[test]
fn scripts_do_not_run_names() {
    let place = Workplace::new();
    let mut model: Value =
        serde_json::from_str(&fs::read_to_string(place.path("model.json")).unwrap()).unwrap();
    model["name"] = json!(EVIL);
    let model = place.write("evil.json", model.to_string());
    let plan = place.path("plan.json");
    let made = planner(&["search", &model, "--gpus", "2", "--quiet", "-o", &plan]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let mut scripts = 0;
    for tool in ["megatron", "torchtitan", "deepspeed", "nanotron", "executor", "accelerate"] {
        for launcher in ["torchrun", "slurm", "mpirun", "kubernetes"] {
            let folder = place.path(&format!("{tool}-{launcher}"));
            let args = ["export", &plan, "--to", tool, "--launcher", launcher, "--approximate"];
            let run = planner(&[&args[..], &["-o", &folder]].concat());
            if run.code != Some(0) {
                check_shown(&run.stderr, &folder);
                continue;
            }
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                let name = path.display().to_string();
                // The plan next to them is for programs, and has the model's description as it is.
                if path.ends_with("plan.json") {
                    continue;
                }
                check_shown(&text, &name);
                if !path.extension().is_some_and(|it| it == "sh" || it == "sbatch") {
                    continue;
                }
                scripts += 1;
                // With every program replaced by nothing, what is left is what the shell itself does.
                let mut bash = Command::new("/bin/bash");
                bash.arg(&path).current_dir(&folder).env("PATH", "/nowhere");
                let run = bash.output().unwrap();
                let told = String::from_utf8_lossy(&run.stderr).into_owned();
                assert!(!told.contains("touch"), "{name} runs a name: {told}");
            }
        }
    }
    assert!(scripts >= 4, "{scripts} scripts were written");
}
