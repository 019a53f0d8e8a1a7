//! Whole runs of `planner schedule`: what it prints, what it reads, what it refuses.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use insta::assert_snapshot;
use ir::schedule::ScheduleKind;
use serde_json::Value;

use crate::bad_input::{Workplace, check_error};
use crate::cli::{Run, command, planner};

const FORMATS: [&str; 3] = ["text", "csv", "json"];

/// Splits at spaces, as a shell would.
fn run(line: &str) -> Run {
    planner(&line.split_whitespace().collect::<Vec<_>>())
}

/// What `planner schedule` says as JSON.
fn report(line: &str) -> Value {
    let run = run(&format!("schedule {line} --format json"));
    assert_eq!(run.stderr, "", "{line}");
    run.json()
}

/// A schedule of 4 ranks and 8 micro-batches.
fn named(kind: ScheduleKind) -> String {
    format!("{kind} --stages 4 --micro-batches 8 --forward 3 --input-grad 5 --weight-grad 2")
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

/// As [`Run::transcript`], with files named as they are in the workplace.
fn transcript(place: &Workplace, line: &str) -> String {
    let folder = place.path("");
    run(&line.replace("{}/", &folder)).transcript().replace(&folder, "")
}

/// Rows that are wider than asked for say how much is left out; the figures come first.
#[test]
fn rows_are_as_wide_as_asked_for() {
    assert_snapshot!(run("schedule 1f1b --stages 2 --micro-batches 40 --columns 40").transcript(), @r"
    exit 0
    --- stdout
    makespan 123; idle 2.4 % of all ranks' time, 2.4 % from first to last action; at most 2 in flight

    0 | F0 F1 B0 F2 B1 F3 B2 F4 .. 72 more
    1 | F0 B0 F1 B1 F2 B2 F3 B3 .. 72 more
    --- stderr
    ");
    let whole = run("schedule 1f1b --stages 2 --micro-batches 40");
    assert!(whole.stdout.ends_with(" B38 F39 B39\n"), "{}", whole.stdout);
}

#[test]
fn a_schedule_is_printed() {
    assert_snapshot!(run("schedule 1f1b --stages 3 --micro-batches 4").transcript(), @r"
    exit 0
    --- stdout
    makespan 18; idle 33.3 % of all ranks' time, 33.3 % from first to last action; at most 3 in flight

    0 | F0 F1 F2 B0 F3 B1 B2 B3
    1 | F0 F1 B0 F2 B1 F3 B2 B3
    2 | F0 B0 F1 B1 F2 B2 F3 B3
    --- stderr
    ");
    assert_snapshot!(run("schedule zbv --stages 2 --micro-batches 2 --format csv").transcript(), @r"
    exit 0
    --- stdout
    0F0,0F1,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1
    1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,2W1,1I1,1W1
    --- stderr
    ");
    let plain = "schedule gpipe --stages 2 --micro-batches 1 --communication --send 4";
    assert_snapshot!(run(plain).transcript(), @r"
    exit 0
    --- stdout
    makespan 14; idle 78.6 % of all ranks' time, 78.6 % from first to last action; at most 1 in flight

    0 | F0 SEND_F0 RECV_B0 B0
    1 | RECV_F0 F0 B0 SEND_B0
    --- stderr
    ");
    assert_snapshot!(run(&format!("{plain} --format json")).transcript(), @r#"
    exit 0
    --- stdout
    {
      "name": "gpipe",
      "num_ranks": 2,
      "num_stages": 2,
      "num_micro_batches": 1,
      "costs": {
        "forward": 1,
        "input_grad": 1,
        "weight_grad": 1,
        "send": 4
      },
      "makespan": 14,
      "bubble_fraction": 0.7857142857142857,
      "bubble_from_first_action": 0.7857142857142857,
      "peak_in_flight": [
        1,
        1
      ],
      "ranks": [
        {
          "start": 0,
          "end": 14,
          "busy": 3,
          "actions": [
            "0F0",
            "0SEND_F0",
            "0RECV_B0",
            "0B0"
          ]
        },
        {
          "start": 5,
          "end": 8,
          "busy": 3,
          "actions": [
            "1RECV_F0",
            "1F0",
            "1B0",
            "1SEND_B0"
          ]
        }
      ]
    }
    --- stderr
    "#);
}

/// A CSV that went out comes in again with the same figures, sends and receives or not.
#[test]
fn every_family_in_every_format() {
    let place = Workplace::new();
    for kind in ScheduleKind::ALL {
        for more in ["", " --send 7", " --communication"] {
            let line = named(kind) + more;
            let [text, csv, json] =
                FORMATS.map(|format| run(&format!("schedule {line} --format {format}")));
            for run in [&text, &csv, &json] {
                assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{line}: {run:?}");
            }
            assert_eq!(csv.stdout.lines().count(), 4, "{line}");
            let mut report = json.json();
            let grid: Vec<&str> = text.stdout.lines().collect();
            assert_eq!(grid.len(), 6, "{line}: {}", text.stdout);
            let figures = format!("makespan {};", report["makespan"]);
            assert!(grid[0].starts_with(&figures), "{line}: {}", text.stdout);

            place.write("out.csv", &csv.stdout);
            let costs = "--forward 3 --input-grad 5 --weight-grad 2";
            let send = if more.contains("send") { more } else { "" };
            let from = format!("schedule --from {} {costs}{send}", place.path("out.csv"));
            let again = run(&format!("{from} --format csv"));
            assert_eq!(again.stdout, csv.stdout, "{line}");
            let mut again = run(&format!("{from} --format json")).json();
            for report in [&mut report, &mut again] {
                report.as_object_mut().unwrap().remove("name");
            }
            assert_eq!(again, report, "{line}");
        }
    }
}

/// Narayanan et al. 2021, section 2.2; Qi et al. 2023, table 2 and section 6, where all passes cost the
/// same.
#[test]
fn figures_are_those_of_the_closed_forms() {
    for (p, m, v, [f, i, w]) in
        [(4, 8, 1, [1, 1, 1]), (2, 2, 2, [3, 5, 2]), (8, 16, 2, [20, 30, 10]), (1, 5, 1, [2, 2, 2])]
    {
        let of = |kind: &str, v: u64| {
            let costs = format!("--forward {f} --input-grad {i} --weight-grad {w}");
            report(&format!("{kind} --stages {p} --micro-batches {m} --virtual-stages {v} {costs}"))
        };
        let pass = f + i + w;
        let flushed = |v: u64| (m * v + p - 1) * pass;
        let mut cases = vec![
            (of("sequential", 1), m * p * pass, 1),
            (of("gpipe", 1), flushed(1), m),
            (of("1f1b", 1), flushed(1), p.min(m)),
            (of("async-1f1b", 1), flushed(1), p.min(m)),
            (of("looped-bfs", v), flushed(v), m * v),
            (of("interleaved-1f1b", v), flushed(v), (2 * (p - 1) + (v - 1) * p + 1).min(m * v)),
        ];
        if f == i && i == w {
            let busy = m * pass;
            cases.push((of("zb-h1", 1), busy + (p - 1) * (f + i - w), p.min(m)));
            cases.push((of("zb-h2", 1), busy + (p - 1) * f, (2 * p - 1).min(m)));
            cases.push((of("zbv", 2), 2 * busy + (p - 1) * f, (2 * p).min(2 * m)));
        }
        for (report, makespan, peak) in cases {
            let name = &report["name"];
            assert_eq!(count(&report["makespan"]), makespan, "{name} p {p} m {m} v {v}");
            let peaks = report["peak_in_flight"].as_array().unwrap();
            assert_eq!(peaks.iter().map(count).max(), Some(peak), "{name} p {p} m {m} v {v}");
            assert_eq!(peaks.len() as u64, p);
            let stages = count(&report["num_stages"]) / p;
            let bubble = 1.0 - (m * stages * pass) as f64 / makespan as f64;
            let stated = report["bubble_fraction"].as_f64().unwrap();
            assert!((stated - bubble).abs() < 1e-12, "{name}: {stated}, not {bubble}");
        }
    }
}

/// What is drawn ends when the figures say.
#[test]
fn the_picture_ends_with_the_makespan() {
    let place = Workplace::new();
    let path = place.path("timeline.json");
    for kind in ScheduleKind::ALL {
        for send in [0, 1, 20] {
            let line = format!("{} --send {send} -o {path}", named(kind));
            let report = report(&line);
            let trace: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let ends = trace["traceEvents"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|event| Some(event["ts"].as_f64()? + event["dur"].as_f64()?));
            // A unit of cost is drawn as a nanosecond, and a trace counts microseconds.
            let end = ends.fold(0.0, f64::max) * 1000.0;
            assert_eq!(end.round() as u64, count(&report["makespan"]), "{line}");
        }
    }
}

/// The passes of an overlapped pair are one above the other for the time of both, and the page counts units as the
/// drawing does.
#[test]
fn pairs_are_one_cell_and_units_are_units() {
    let place = Workplace::new();
    let drawn = |ending: &str| {
        let output = place.path(&format!("dualpipe.{ending}"));
        let line =
            format!("schedule dualpipe --stages 4 --micro-batches 8 -o {output} --theme dark");
        assert_eq!(run(&line).code, Some(0));
        fs::read_to_string(output).unwrap()
    };
    let trace: Value = serde_json::from_str(&drawn("json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let passes = || events.iter().filter(|event| event["ph"] == "X" && event["pid"] == 0);
    // Of the pairs on the first rank, both take three units: a nanosecond each.
    let long: Vec<&Value> = passes().filter(|event| event["dur"].as_f64() == Some(0.003)).collect();
    let forwards: Vec<&&Value> = long.iter().filter(|it| it["cat"] == "forward").collect();
    assert!(!forwards.is_empty(), "{events:?}");
    for forward in forwards {
        assert!(
            long.iter().any(|other| other["ts"] == forward["ts"] && other["cat"] == "backward")
        );
    }
    let svg = drawn("svg");
    assert!(svg.contains("one above the other: at the same time") && svg.contains("#16191E"));
    let page = drawn("html");
    assert!(page.contains("\"unit_nanoseconds\":1,"));
    assert!(page.contains(" units, ") && !page.contains(" ns, "));
}

#[test]
fn the_same_bytes_each_time() {
    let place = Workplace::new();
    let bytes = |threads: &str| -> Vec<(Vec<u8>, Vec<u8>)> {
        let runs = ["interleaved-zb", "v-half", "dualpipe"].iter().flat_map(|kind| {
            let place = &place;
            FORMATS.map(|format| {
                let page = place.path("page.html");
                let line = format!("schedule {kind} --stages 4 --micro-batches 12 -o {page}");
                let line = format!("{line} --format {format}");
                let args: Vec<&str> = line.split_whitespace().collect();
                let output = command(&args).env("RAYON_NUM_THREADS", threads).output().unwrap();
                assert!(output.status.success(), "{output:?}");
                (output.stdout, fs::read(page).unwrap())
            })
        });
        runs.collect()
    };
    let once = bytes("1");
    assert_eq!(once, bytes("1"));
    assert_eq!(once, bytes("2"));
}

#[test]
fn costs_may_be_nothing_or_large() {
    for kind in ScheduleKind::ALL {
        let line = format!("{kind} --stages 4 --micro-batches 8 --forward 0 --input-grad 0");
        let report = report(&format!("{line} --weight-grad 0"));
        assert_eq!(report["makespan"], 0, "{kind}");
        assert_eq!(report["bubble_fraction"], 0.0, "{kind}");
        assert_eq!(report["bubble_from_first_action"], 0.0, "{kind}");
    }
    // Ranks times makespan exceed 64 bits.
    let most = 1_000_000_000_000_u64;
    let costs = format!("--forward {most} --input-grad {most} --weight-grad {most}");
    let report = report(&format!("sequential --stages 1000 --micro-batches 10 {costs}"));
    assert_eq!(count(&report["makespan"]), 1000 * 10 * 3 * most);
    let bubble = report["bubble_fraction"].as_f64().unwrap();
    assert!((bubble - (1.0 - 1.0 / 1000.0)).abs() < 1e-12, "{bubble}");
}

/// What is written to a file is what is printed, and reads back as the same schedule.
#[test]
fn a_csv_goes_both_ways() {
    let place = Workplace::new();
    let path = place.path("out.csv");
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::Zbv] {
        let line = format!("schedule {} --communication", named(kind));
        let printed = run(&format!("{line} --format csv -o {path}"));
        assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{kind}");
        assert_eq!(fs::read_to_string(&path).unwrap(), printed.stdout, "{kind}");
        let again = run(&format!("schedule --from {path} --format csv"));
        assert_eq!(again.stdout, printed.stdout, "{kind}");
    }
    place.fails("schedule --from {}/out.csv -o {}/out.csv", &["out.csv", "is read"]);
}

#[test]
fn files_that_are_no_schedule() {
    let place = Workplace::new();
    fs::create_dir(place.path("folder")).unwrap();
    place.fails("schedule --from {}/folder", &["folder", "directory"]);
    place.fails("schedule --from {}/nothing.csv", &["nothing.csv", "No such file"]);
    for (text, words) in [
        (&b""[..], &["empty, not the order"][..]),
        (b"\n\n", &["empty, not the order"]),
        (b",,,\r\n,,", &["no action"]),
        (b"\xff\x00\x01garbage", &["utf-8"]),
        (b"0F0,0B0\n1F0,1B0,1Q0\n", &["row 2, column 3", "`1Q0`", "2F0"]),
        (b"0F0,,0F,0B0", &["row 1, column 3", "`0F`"]),
        (b"0F0;0B0", &["row 1, column 1", "`0F0;0B0`"]),
        (b"0F4294967296", &["row 1, column 1", "`0F4294967296`"]),
        (b"-1F0,0B0", &["row 1, column 1", "`-1F0`"]),
        (b"(0F0;0B1", &["row 1, column 1"]),
        (b"{\"traceEvents\": []}", &["a timeline, not the order"]),
        // Incomplete, far or near.
        (b"0F0,0B0,0F4294967294,0B4294967294", &["`0F1` is missing"]),
        (b"4294967295F0", &["`0F0` is missing"]),
        (b"0F0", &["`0B0` is missing"]),
        (b"0F0,0I0", &["`0W0` is missing"]),
        (b"0F0,0B0\n1F0,1B0,1B0", &["`1B0`", "second time", "[1B0]  <-- here"]),
        (b"0F0,0B0\n0F0,0B0", &["`0F0`", "rank 1", "rank 0", "[0F0]"]),
    ] {
        place.write("bad.csv", text);
        let words = [&["bad.csv"], words].concat();
        place.fails("schedule --from {}/bad.csv", &words);
        place.fails("schedule --from {}/bad.csv --format json -o {}/page.html", &words);
    }
    place.write("long.csv", "F".repeat(1 << 20));
    place.fails("schedule --from {}/long.csv", &["long.csv", "row 1, column 1", "FFFF"]);
    place.write("tall.csv", "0F0\n".repeat(1 << 15));
    place.fails("schedule --from {}/tall.csv", &["tall.csv", "`0F0`", "<-- here"]);
    if cfg!(unix) && slow("reads a gigabyte") {
        place.fails("schedule --from /dev/zero", &["/dev/zero", "more than"]);
    }
}

/// Whether tests that take long are wanted; says so if not.
#[expect(clippy::print_stderr, reason = "a test that skips says why")]
fn slow(what: &str) -> bool {
    let wanted = std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1");
    if !wanted {
        eprintln!("skipped: {what}, without RUN_SLOW_TESTS=1");
    }
    wanted
}

#[test]
fn a_defect_is_shown_where_it_is() {
    let place = Workplace::new();
    place.write("order.csv", "0F0,0F1,0B0,0B1\r\n1F0,1B0,1B1,1F1\r\n");
    assert_snapshot!(transcript(&place, "schedule --from {}/order.csv"), @r"
    exit 2
    --- stdout
    --- stderr
    error: `order.csv`: `1B1` comes before `1F1`, which it needs

    0 | 0F0 0F1 0B0 0B1
    1 | 1F0 1B0 [1B1] 1F1  <-- here
    ");
    place.write("deadlock.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    assert_snapshot!(transcript(&place, "schedule --from {}/deadlock.csv"), @r"
    exit 2
    --- stdout
    --- stderr
    error: `deadlock.csv`: deadlock: rank 0 waits at `0B0` for `1B0` of rank 1, rank 1 waits at `1F1` for `0F1` of rank 0

    0 | 0F0 [0B0] 0F1 0B1  <-- here
    1 | 1F0 1F1 1B0 1B1
    ");
    // Of a long row only the part around it.
    let row = |actions: &[&str]| -> String {
        let row = (0..40).flat_map(|m| actions.iter().map(move |action| format!("{action}{m}")));
        row.collect::<Vec<_>>().join(",")
    };
    let bad = row(&["1F", "1B"]).replace("1F20,1B20", "1B20,1F20");
    place.write("long.csv", row(&["0F", "0B"]) + "\n" + &bad);
    assert_snapshot!(transcript(&place, "schedule --from {}/long.csv"), @r"
    exit 2
    --- stdout
    --- stderr
    error: `long.csv`: `1B20` comes before `1F20`, which it needs

    0 | .. 0F18 0B18 0F19 0B19 0F20 0B20 0F21 0B21 0F22 ..
    1 | .. 1F18 1B18 1F19 1B19 [1B20] 1F20 1F21 1B21 1F22 ..  <-- here
    ");
}

#[test]
fn numbers_that_a_schedule_does_not_take() {
    let place = Workplace::new();
    place.write("good.csv", "0F0,0B0");
    place.fails("schedule", &["NAME"]);
    place.fails("schedule 1f1b", &["--stages", "--micro-batches", "hint:"]);
    place.fails("schedule 1f1b --stages 2", &["--micro-batches", "hint:"]);
    place.fails("schedule wavefront --stages 2 --micro-batches 2", &["`wavefront`", "dualpipev"]);
    for more in ["1f1b", "--stages 2", "--micro-batches 2", "--virtual-stages 2"] {
        place
            .fails(&format!("schedule --from {{}}/good.csv {more}"), &["--from", "cannot be used"]);
    }
    for flag in ["--stages", "--micro-batches", "--virtual-stages"] {
        for value in ["0", "-1", "1.5", "NaN", "4294967296", "two"] {
            let line = "schedule interleaved-1f1b --stages 2 --micro-batches 2 --virtual-stages 2";
            let line = line.replace(&format!("{flag} 2"), &format!("{flag} {value}"));
            place.fails(&line, &[flag, value, "at least 1"]);
        }
    }
    for flag in ["--forward", "--input-grad", "--weight-grad", "--send"] {
        for value in ["-1", "1.5", "NaN", "inf", "1000000000001", "99999999999999999999"] {
            let line = format!("schedule 1f1b --stages 2 --micro-batches 2 {flag} {value}");
            place.fails(&line, &[flag, value, "whole number between 0 and 1000000000000"]);
        }
    }
    for (line, words) in [
        ("dualpipe --stages 3 --micro-batches 6", &["`dualpipe`", "3 is odd", "4 fits"][..]),
        ("dualpipe --stages 4 --micro-batches 9", &["`dualpipe`", "9 is odd", "10 fits"]),
        ("dualpipe --stages 8 --micro-batches 2", &["`dualpipe`", "8 ranks", "at least"]),
        ("dualpipev --stages 4 --micro-batches 1", &["`dualpipev`", "4 ranks", "at least 8"]),
        ("v-half --stages 4 --micro-batches 8 --virtual-stages 3", &["`v-half`", "2, not 3"]),
        ("1f1b --stages 4 --micro-batches 8 --virtual-stages 2", &["`1f1b`", "1, not 2"]),
        ("gpipe --stages 4294967295 --micro-batches 4294967295", &["4294967295", "more than"]),
        ("looped-bfs --stages 65536 --micro-batches 1 --virtual-stages 65536", &["4294967296"]),
        ("zb-h1 --stages 1 --micro-batches 4294967295", &["4294967295", "more than"]),
        ("1f1b --stages 2 --micro-batches 2 --format yaml", &["yaml", "csv, text, json"]),
    ] {
        place.fails(&format!("schedule {line}"), words);
    }
}

#[test]
fn pictures_that_cannot_be_written() {
    let place = Workplace::new();
    fs::create_dir(place.path("folder.html")).unwrap();
    place.write("good.csv", "0F0,0B0");
    place.write("mine.json", "0F0,0B0");
    for (output, words) in [
        ("{}/nowhere/page.html", &["nowhere/page.html", "no folder"][..]),
        ("{}/good.csv/page.html", &["good.csv/page.html", "is a file, not a folder"]),
        ("{}/folder.html", &["folder.html", "is a folder"]),
        ("{}/page", &["page", ".html", ".json"]),
        ("{}/page.gif", &["page.gif", ".html", ".json"]),
        ("{}/.html", &[".html"]),
        ("{}/", &[".html", ".json"]),
        ("/dev/stdout", &["/dev/stdout", ".html", ".json"]),
    ] {
        place.fails(&format!("schedule 1f1b --stages 2 --micro-batches 2 -o {output}"), words);
        place.fails(&format!("schedule --from {{}}/good.csv --format csv -o {output}"), words);
    }
    place.fails("schedule --from {}/mine.json -o {}/mine.json", &["mine.json", "--output"]);
}

#[cfg(unix)]
#[test]
fn devices_that_are_full_and_folders_that_are_locked() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let place = Workplace::new();
    let schedule = "schedule 1f1b --stages 2 --micro-batches 2";
    if PathBuf::from("/dev/full").exists() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full.html");
        symlink("/dev/full", &path).unwrap();
        let run = run(&format!("{schedule} -o {}", path.display()));
        check_error(&run, &[schedule], &["full.html", "No space left"]);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let args: Vec<&str> = schedule.split_whitespace().collect();
        let output = command(&args).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains("No space left"), "{stderr}");
    }
    let locked = place.path("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    // The superuser may write everywhere.
    if fs::write(format!("{locked}/probe"), "").is_err() {
        let words = ["locked/page.html", "Permission denied"];
        place.fails(&format!("{schedule} -o {{}}/locked/page.html"), &words);
    }
}

/// A file of 10^7 actions, 87 MB.
#[test]
fn ten_million_actions_are_read_and_timed() {
    if !slow("ten million actions") {
        return;
    }
    let place = Workplace::new();
    let path = place.path("long.csv");
    let (p, m) = (64_u64, 78_125_u64);
    let mut file = std::io::BufWriter::new(fs::File::create(&path).unwrap());
    for stage in 0..p {
        let num_warmup = p - 1 - stage;
        for forward in 0..m + num_warmup {
            if forward < m {
                write!(file, "{stage}F{forward},").unwrap();
            }
            if let Some(backward) = forward.checked_sub(num_warmup) {
                write!(file, "{stage}B{backward},").unwrap();
            }
        }
        writeln!(file).unwrap();
    }
    file.into_inner().unwrap();
    // Without the limit on a run's time, which the unoptimized command exceeds.
    let output = command(&["schedule", "--from", &path]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let figures = text.lines().next().unwrap();
    assert!(figures.starts_with(&format!("makespan {}; idle 0.1 %", (m + p - 1) * 3)), "{figures}");
    assert!(figures.ends_with("at most 64 in flight"), "{figures}");
}
