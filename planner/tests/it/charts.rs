//! Whole runs of `planner chart`: pages and traces of plans and timelines.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bad_input::{Workplace, check_error};
use crate::cli::{planner, run};
use crate::simulate_commands::plans;

const TWO_GPUS: &str = "evaluate tiny-llama --gpus 2 --global-batch-size 4 --quiet";

/// Draws `inputs`, which are names in the workplace, and gives the file that came out.
fn chart(place: &Workplace, inputs: &[&str], output: &str) -> String {
    let inputs: Vec<String> = inputs.iter().map(|input| place.path(input)).collect();
    let output = place.path(output);
    let mut args = vec!["chart"];
    args.extend(inputs.iter().map(String::as_str));
    args.extend(["-o", &output]);
    let run = planner(&args);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""), "{args:?}");
    fs::read_to_string(output).unwrap()
}

/// A timeline of ours with the `events` between the names.
fn trace(events: &[Value]) -> String {
    let tracks = json!([{"name": "rank", "rank": 0, "num_ranks": 1}]);
    let other =
        json!({"format": "planner timeline", "version": 1, "title": "few", "tracks": tracks});
    json!({"otherData": other, "traceEvents": events}).to_string()
}

fn pass(name: &str, start: f64, duration: f64) -> Value {
    json!({"ph": "X", "pid": 0, "tid": 1, "ts": start, "dur": duration, "name": name})
}

#[test]
fn a_plan_and_its_timeline_are_the_same_picture() {
    let place = Workplace::new();
    for (path, _) in plans(&place) {
        let name = Path::new(&path).file_name().unwrap().to_str().unwrap();
        let timeline = place.path("timeline.json");
        assert_eq!(planner(&["simulate", &path, "-o", &timeline]).code, Some(0));
        let written = fs::read_to_string(&timeline).unwrap();
        for output in ["out.json", "out.html", "out.HTML"] {
            let of_plan = chart(&place, &[name], output);
            let of_timeline = chart(&place, &["timeline.json"], output);
            assert!(of_plan == of_timeline, "{name}, {output}");
            if output == "out.json" {
                assert!(of_plan == written, "{name}: a trace of a trace is the trace");
            } else {
                assert!(of_plan.starts_with("<!DOCTYPE html>"), "{}", &of_plan[..80]);
                assert!(of_plan.trim_end().ends_with("</html>"), "{name}");
            }
        }
    }
}

/// Below the title stands what tells plans of one layout apart, and readers who do not see the picture are told too.
#[test]
fn plans_are_told_apart_below_their_titles() {
    let place = Workplace::new();
    for (given, words) in [
        ("--layout dp2-zero1", &["ZeRO-1", "no recompute", "data parallel"][..]),
        (
            "--layout pp2 --recompute full",
            &["no ZeRO", "recompute full", "recompute, within backward: "],
        ),
        ("--layout pp2 --seq-len 32", &["batch 4, sequence 32", "gradient norm"]),
        ("--layout dp2 --micro-batch-size 1", &["micro-batch size 1", "bf16", "megatron-core"]),
    ] {
        let plan = place.path("plan.json");
        let run = run(&format!("{TWO_GPUS} -o {plan} {given}"));
        assert_eq!(run.code, Some(0), "{given}: {}", run.stderr);
        let svg = chart(&place, &["plan.json"], "out.svg");
        for word in words {
            assert!(svg.contains(word), "no `{word}` in the picture of {given}");
        }
        let described = svg.split("<desc>").nth(1).and_then(|rest| rest.split("</desc>").next());
        let described = described.unwrap();
        for word in ["batch 4", "step ", "bubble ", "peak memory "] {
            assert!(described.contains(word), "no `{word}` in {described}");
        }
    }
}

/// A part of memory has one colour, whatever else a plan has.
#[test]
fn parts_of_memory_keep_their_colours() {
    let place = Workplace::new();
    let color = |given: &str| {
        let (plan, picture) = (place.path("plan.json"), place.path("memory.svg"));
        assert_eq!(run(&format!("{TWO_GPUS} -o {plan} {given}")).code, Some(0), "{given}");
        let run = planner(&["chart", &plan, "--show", "memory", "-o", &picture]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let svg = fs::read_to_string(picture).unwrap();
        let before = svg.split("device context").next().unwrap();
        let fill = before.rsplit("<rect").next().unwrap().split("fill=\"").nth(1).unwrap();
        fill.split('"').next().unwrap().to_owned()
    };
    let with_gathered = color("--layout dp2-zero3");
    assert_eq!(color("--layout dp2"), with_gathered);
    assert_eq!(color("--layout pp2 --recompute full"), with_gathered);
}

/// A page stands alone, with each title that is in it.
#[test]
fn several_timelines_share_a_page() {
    let place = Workplace::new();
    let plans = plans(&place);
    let names: Vec<&str> = plans.iter().map(|(path, _)| path.rsplit('/').next().unwrap()).collect();
    let page = chart(&place, &names, "page.html");
    assert!(page.len() > chart(&place, &names[..1], "one.html").len());
    for name in &names {
        let title: Value = serde_json::from_str(&chart(&place, &[name], "one.json")).unwrap();
        let title = title["otherData"]["title"].as_str().unwrap();
        assert!(page.contains(title), "`{title}` is not on the page");
    }
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "it loads something");
    assert_eq!(page, chart(&place, &names, "page.html"));
    // The same one twice is two.
    let twice = chart(&place, &[names[0], names[0]], "page.html");
    assert!(twice.len() > chart(&place, &names[..1], "page.html").len());
    let two = format!("chart {{}}/{} {{}}/{} -o {{}}/out.json", names[0], names[1]);
    place.fails(&two, &["one timeline, not 2", "hint:", ".html"]);
    let nine = "{}/alone.json ".repeat(9);
    place.fails(&format!("chart {nine} -o {{}}/out.html"), &[]);
}

#[test]
fn timelines_of_next_to_nothing_are_drawn() {
    let place = Workplace::new();
    let idle = json!({
        "otherData": {"format": "planner timeline", "version": 1, "title": "none", "tracks": []},
        "traceEvents": [],
    });
    place.write("empty.json", idle.to_string());
    place.write("idle.json", trace(&[]));
    place.write("one.json", trace(&[pass("0F0", 1.5, 2.25)]));
    place.write("instant.json", trace(&[pass("0F0", 0.0, 0.0)]));
    for name in ["empty.json", "idle.json", "one.json", "instant.json"] {
        let page = chart(&place, &[name], "page.html");
        assert!(
            !page.contains("NaN") || page.matches("NaN").count() == page.matches("isNaN").count()
        );
        let again: Value = serde_json::from_str(&chart(&place, &[name], "trace.json")).unwrap();
        let events = again["traceEvents"].as_array().unwrap();
        let passes: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(passes.len(), usize::from(["one.json", "instant.json"].contains(&name)));
        if name == "one.json" {
            assert_eq!((&passes[0]["ts"], &passes[0]["dur"]), (&json!(1.5), &json!(2.25)));
        }
    }
    chart(&place, &["empty.json", "idle.json", "one.json", "instant.json"], "all.html");
}

#[test]
fn files_that_are_no_timeline() {
    let place = Workplace::new();
    let (plan, _) = plans(&place).swap_remove(1);
    let good = chart(&place, &["pipeline.json"], "timeline.json");
    fs::create_dir(place.path("folder")).unwrap();
    place.fails("chart {}/nothing.json -o {}/out.html", &["nothing.json", "No such file"]);
    place.fails("chart {}/folder -o {}/out.html", &["folder", "directory"]);
    let events = "\"traceEvents\"";
    let foreign = format!("{{{events}: [{}]}}", pass("foo", 0.0, 1.0));
    let other = trace(&[]).replace("planner timeline", "some profiler");
    let newer = trace(&[]).replace("\"version\":1", "\"version\":2");
    // Cut at the end of a line, so that no number is cut in two.
    let good_half = &good[..=good[..good.len() / 2].rfind('\n').unwrap()];
    for (text, words) in [
        (String::new(), &["empty"][..]),
        ("GIF89a".to_owned(), &["a picture, not a plan"]),
        ("[]".to_owned(), &["not a timeline of this program"]),
        (format!("\n[{}]", pass("foo", 0.0, 1.0)), &["not a timeline of this program"]),
        (foreign, &["not a timeline of this program", "only traces that this program wrote"]),
        (format!("[{{{events}: 1}}]"), &["not a timeline of this program"]),
        (other, &["some profiler", "only traces that this program wrote"]),
        (newer, &["version", "is 2", "version 1"]),
        (good_half.to_owned(), &["not a timeline", "line", "EOF"]),
        (good[..good.len() - 3].to_owned(), &["not a timeline", "line", "EOF"]),
        (good.clone() + "x", &["not a timeline", "trailing"]),
        (trace(&[pass("0F0", 5.0, 1.0), pass("0F1", 4.0, 1.0)]), &["[1]", "earlier"]),
        (trace(&[pass("0Q0", 0.0, 1.0)]), &["[0]", "`0Q0`"]),
        (trace(&[pass("0F0", -1.0, 1.0)]), &["[0]", "`ts`", "-1"]),
        (trace(&[pass("0F0", 0.0, -1.0)]), &["[0]", "`dur`", "-1"]),
        (trace(&[pass("0F0", 1e300, 1.0)]), &["[0]", "`ts`"]),
        (trace(&[pass("0F0", 9.1e12, 1.0)]), &["[0]", "9007199254740"]),
        (trace(&[json!({"ph": "X", "pid": 1, "tid": 1, "name": "0F0"})]), &["[0]"]),
        (trace(&[json!({"ph": "X"})]), &["[0]", "missing"]),
        (trace(&[json!("F")]), &["line 1"]),
    ] {
        place.write("bad.json", text);
        for output in ["out.html", "out.json"] {
            let words = [&["bad.json"], words].concat();
            place.fails(&format!("chart {{}}/bad.json -o {{}}/{output}"), &words);
            // One bad file among good ones spoils all.
            place.fails(&format!("chart {plan} {{}}/bad.json -o {{}}/out.html"), &words);
        }
    }
    for (text, word) in [(&b"\xff\xfe\x00"[..], "UTF-16"), (b"\xff\x00", "utf-8")] {
        place.write("bad.json", text);
        place.fails("chart {}/bad.json -o {}/out.html", &["bad.json", word]);
    }
}

#[test]
fn pictures_that_cannot_be_written() {
    let place = Workplace::new();
    place.write("one.json", trace(&[pass("0F0", 1.5, 2.25)]));
    fs::create_dir(place.path("folder.html")).unwrap();
    for (output, words) in [
        ("{}/nowhere/out.html", &["nowhere/out.html", "no folder"][..]),
        ("{}/folder.html", &["folder.html", "is a folder"]),
        ("{}/one.json/out.html", &["one.json/out.html", "is a file, not a folder"]),
        ("{}/out", &["out", ".html", ".json"]),
        ("{}/out.gif", &["out.gif", ".html", ".json"]),
        ("/dev/stdout", &["/dev/stdout", ".html", ".json"]),
        ("/dev/null", &["/dev/null", ".html", ".json"]),
    ] {
        place.fails(&format!("chart {{}}/one.json -o {output}"), words);
    }
    // The ending is looked at before files are.
    place.fails("chart {}/nothing.json -o {}/out.gif", &["out.gif", ".html"]);
    place.fails("chart {}/one.json", &["--output"]);
    place.fails("chart -o {}/out.html", &["<PLAN|TIMELINE>"]);
    for width in ["0", "-5", "199", "20001", "wide"] {
        let words = ["--width", "between 200 and 20000"];
        place.fails(&format!("chart {{}}/one.json -o {{}}/out.html --width {width}"), &words);
    }
    place.fails("chart {}/one.json -o {}/out.html --theme blue", &["blue", "light, dark"]);
}

#[cfg(unix)]
#[test]
fn pictures_may_go_to_devices() {
    use std::os::unix::fs::symlink;

    let place = Workplace::new();
    let one = place.write("one.json", trace(&[pass("0F0", 1.5, 2.25)]));
    let folder = tempfile::tempdir().unwrap();
    let link = |target: &str| {
        let path = folder.path().join(format!("{}.html", target.replace('/', "-")));
        symlink(target, &path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let run = planner(&["chart", &one, "-o", &link("/dev/stdout")]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.starts_with("<!DOCTYPE html>"), "{}", run.stdout);
    if fs::metadata("/dev/full").is_ok() {
        let args = ["chart", &one, "-o", &link("/dev/full")];
        check_error(&planner(&args), &args, &["full.html", "No space left"]);
    }
}

/// A part of the step by time or by micro-batches, in all forms of a picture, and what is asked for in vain.
#[test]
fn a_part_of_the_step() {
    let place = Workplace::new();
    let events: Vec<Value> = (0..8)
        .map(|index| pass(&format!("0F{index}"), f64::from(index) * 1000.0, 1000.0))
        .collect();
    place.write("one.json", trace(&events));
    let draw = |more: &str, output: &str| {
        let (input, output) = (place.path("one.json"), place.path(output));
        let mut args = vec!["chart", &*input, "-o", &*output];
        args.extend(more.split_whitespace());
        let run = planner(&args);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
        fs::read(output).unwrap()
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let whole = text(draw("", "out.svg"));
    let part = text(draw("--from 2ms --to 4ms", "out.svg"));
    assert!(part.contains("shown from 2.00 ms to 4.00 ms") && !whole.contains("shown from"));
    let count = |svg: &str| svg.to_lowercase().matches("#56b4e9").count();
    assert_eq!((count(&whole), count(&part)), (8 + 1, 2 + 1), "boxes and the legend");
    let first = text(draw("--first-micro-batches 3", "out.svg"));
    assert!(first.contains("shown from 0 s to 3.00 ms"), "{first}");
    let page = text(draw("--from 0.002 --to 4000us", "out.html"));
    assert!(page.contains("\"view_start_nanoseconds\":2000000,\"view_end_nanoseconds\":4000000"));
    assert!(draw("--to 4ms --theme dark", "out.pdf").starts_with(b"%PDF-"));
    for (args, words) in [
        (
            "-o {}/out.svg --from 4ms --to 2ms",
            &["`--to` 2.00 ms is not after `--from` 4.00 ms"][..],
        ),
        ("-o {}/out.svg --from 9ms", &["nothing to draw", "8.00 ms"]),
        ("-o {}/out.html --from 9ms", &["nothing to draw", "8.00 ms"]),
        ("-o {}/out.json --from 2ms", &["a Chrome trace has the whole step", "hint:"]),
        ("-o {}/out.svg --from soon", &["--from", "must be a time"]),
        ("-o {}/out.svg --from -1", &["--from", "must be a time"]),
        ("-o {}/out.svg --first-micro-batches 0", &["--first-micro-batches", "at least 1"]),
        ("-o {}/out.svg --from 1ms --first-micro-batches 2", &["cannot be used with"]),
    ] {
        place.fails(&format!("chart {{}}/one.json {args}"), words);
    }
}

#[test]
fn memory_is_shown_at_its_fullest() {
    let place = Workplace::new();
    let (plan, _) = plans(&place).swap_remove(1);
    for (args, words) in [
        ("--from 1s -o {}/out.svg", "`--show memory` shows the fullest moment"),
        ("-o {}/out.html", "`--show memory` is drawn as .svg"),
    ] {
        place.fails(&format!("chart {plan} --show memory {args}"), &[words]);
    }
}

/// Reads a snapshot as Python's own pickle has it, and prints for each device the most that is held at once, what is
/// held at the end, and what segments hold.
const READ_SNAPSHOT: &str = r"
import pickle, sys
s = pickle.load(open(sys.argv[1], 'rb'))
assert sorted(s) == ['allocator_settings', 'device_traces', 'segments'], s.keys()
for device, events in enumerate(s['device_traces']):
    held, most, live = 0, 0, {}
    assert [e['time_us'] for e in events] == sorted(e['time_us'] for e in events)
    for e in events:
        assert e['frames'][0]['name'] and e['frames'][0]['filename'] == 'predicted'
        if e['action'] == 'alloc':
            assert e['addr'] not in live
            live[e['addr']] = e['size']
            held += e['size']
        elif e['action'] == 'free_completed':
            held -= e['size']
            assert live.pop(e['addr']) == e['size']
        else:
            assert e['action'] == 'free_requested' and live[e['addr']] == e['size']
        most = max(most, held)
    of = [g for g in s['segments'] if g['device'] == device]
    assert all(sum(b['size'] for b in g['blocks']) == g['total_size'] for g in of)
    print(most, held, sum(g['total_size'] for g in of))
";

#[test]
fn a_snapshot_of_memory_is_what_pytorch_reads() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let named = "models/llama-3.1-8b --gpus 16 --layout tp2-pp4-dp2-mbs1 --quiet";
    let run = run(&format!("evaluate {named} -o {plan}"));
    assert_eq!(run.code, Some(0), "{run:?}");
    let snapshot = place.path("memory.pickle");
    let run = planner(&["chart", &plan, "--show", "memory", "-o", &snapshot]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    place.fails(
        &format!("chart {plan} -o {snapshot}"),
        &["a snapshot shows memory", "--show memory"],
    );
    let ranks = planner(&["simulate", &plan, "--format", "json"]).json();
    let peaks = ranks["ranks"].as_array().unwrap().iter().map(|rank| &rank["peak_memory_bytes"]);
    let peaks: Vec<String> = peaks.map(ToString::to_string).collect();
    let read = Command::new("python3").args(["-c", READ_SNAPSHOT, &snapshot]).output();
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            let _ = writeln!(io::stderr(), "skipped: no python3: {error}");
            return;
        }
    };
    let said = String::from_utf8(read.stdout).unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    let most: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(most, peaks);
    assert!(rows.iter().all(|row| row[1] == row[2]), "{said}");
}
