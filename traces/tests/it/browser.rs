//! Pages in a browser: they draw, zoom, pan, unfold and answer, without an error.
//!
//! Uses Chromium where it is installed, or the browser that `CHROMIUM` names, and skips where there
//! is none. `tests/browser/drive.js` is the reader; here stands what it must have seen.

use ir::schedule::ScheduleKind;
use serde_json::{Value, json};
use traces::html::{self, PageOptions};
use traces::timeline::{Stream, Timeline};

use crate::chromium::seen;
use crate::samples::{one_event, pipeline};

fn page(timelines: &[&Timeline]) -> String {
    html::page(timelines, &PageOptions::default()).unwrap()
}

#[test]
fn a_small_step_can_be_explored() {
    let timeline = pipeline(ScheduleKind::OneFOneB, 4, 8);
    let Some(saw) = explore(&[&timeline], Some((1, "1B2"))) else { return };
    check_moves(&saw);
    let names: Vec<&str> = saw.tracks().map(|track| track["name"].as_str().unwrap()).collect();
    assert_eq!(names, [0, 1, 2, 3].map(|rank| format!("pipeline rank {rank}")));
    check_target(&saw, &timeline, 1, "1B2");
    // Names of 4 tracks and their memory; then of 3 streams of one track, then of all.
    assert_eq!(saw.0["numNames"], json!([8, 11, 20, 8]));
    assert!(saw.0["titles"].as_str().unwrap().contains("step 43.14 ms"));
    // Few ranks have the whole height.
    assert!(saw.number("filled") > 0.75, "{}", saw.number("filled"));
    // What comes after a backward on the second of four ranks.
    assert_eq!(saw.0["selectedNext"], "1F5");
}

#[test]
fn overlapped_actions_can_be_told_apart() {
    let timeline = pipeline(ScheduleKind::DualPipeV, 4, 12);
    let Some(saw) = explore(&[&timeline], None) else { return };
    check_moves(&saw);
    let streams = saw.0["tracks"][0]["streams"].as_array().unwrap();
    assert_eq!(streams.iter().filter(|stream| *stream == "compute").count(), 2);
}

#[test]
fn nothing_and_one_event_are_shown() {
    let Some(saw) = explore(&[&Timeline::default()], None) else { return };
    assert_eq!(saw.tracks().count(), 0);
    assert!(saw.number("colors") > 2.0, "`nothing happens` is written");
    let one = one_event();
    let Some(saw) = explore(&[&one], Some((0, "0F0"))) else { return };
    check_moves(&saw);
    check_target(&saw, &one, 0, "0F0");
}

#[test]
fn two_steps_are_compared_on_one_axis() {
    let slow = pipeline(ScheduleKind::OneFOneB, 4, 8);
    let quick = pipeline(ScheduleKind::ZbH1, 4, 8);
    let Some(saw) = explore(&[&quick, &slow], Some((7, "3B7"))) else { return };
    check_moves(&saw);
    assert_eq!(saw.tracks().count(), 8);
    assert_eq!(saw.0["view"]["fullEnd"], slow.end().as_f64());
    assert_eq!(saw.0["hit"]["label"], "3B7");
    assert!(
        saw.0["titles"].as_str().unwrap().contains("step 43.14 ms, 22.8 % longer than the first")
    );
}

#[test]
fn steps_of_different_work_are_not_compared() {
    let slow = pipeline(ScheduleKind::OneFOneB, 4, 8);
    let other = Timeline { work: "a larger model".to_owned(), ..slow.clone() };
    let Some(saw) = explore(&[&slow, &other], None) else { return };
    let titles = saw.0["titles"].as_str().unwrap();
    assert!(titles.contains("a larger model") && !titles.contains("than the first"), "{titles}");
}

#[test]
fn a_large_step_can_be_explored() {
    let timeline = pipeline(ScheduleKind::ZbH1, 64, 256);
    let Some(saw) = explore(&[&timeline], Some((9, "9W100"))) else { return };
    check_moves(&saw);
    assert_eq!(saw.tracks().count(), 64);
    check_target(&saw, &timeline, 9, "9W100");
}

/// What every page with something on it does.
fn check_moves(saw: &Saw) {
    let (start, end, full) =
        (saw.number("view/start"), saw.end("view"), saw.number("view/fullEnd"));
    assert_eq!((start, end), (0.0, full));
    assert!(saw.span("zoomedIn") < saw.span("view"));
    assert!(saw.number("dragged/start") > saw.number("zoomedIn/start"));
    assert!(saw.number("panned/start") < saw.number("dragged/start"));
    for moved in ["dragged", "panned"] {
        let change = saw.span(moved) / saw.span("zoomedIn");
        assert!((change - 1.0).abs() < 1e-9, "{moved} is no zoom");
    }
    assert!(saw.span("zoomedOut") > saw.span("zoomedIn"));
    assert!(saw.span("zoomedByKey") < saw.span("zoomedOut"));
    assert!(saw.span("zoomedByClick") < saw.span("zoomedByKey"));
    assert!((saw.span("pinched") / saw.span("view") - 0.5).abs() < 1e-9);
    assert_eq!(saw.0["reset"], saw.0["view"]);
    assert!(saw.number("colors") > 4.0 && saw.number("colorsInOtherTheme") > 4.0);
    let is_unfolded = |field: &str| -> Vec<bool> {
        saw.0[field].as_array().unwrap().iter().map(|unfolded| *unfolded == true).collect()
    };
    assert!(is_unfolded("unfolded").iter().enumerate().all(|(i, unfolded)| *unfolded == (i == 0)));
    assert!(is_unfolded("allUnfolded").iter().all(|unfolded| *unfolded));
    assert_eq!(saw.0["keysAreShown"], true);
    let range = ["range/start", "range/end"].map(|end| saw.number(end) / full);
    assert!((range[0] - 0.25).abs() < 0.01 && (range[1] - 0.5).abs() < 0.01, "{range:?}");
    let totals = saw.0["rangeDetails"].as_str().unwrap();
    assert!(totals.contains("mean of a rank") && totals.contains("forward"), "{totals}");
    assert!(saw.0["selectedByKey"].is_string());
}

/// What was asked about an event is what the timeline says.
fn check_target(saw: &Saw, timeline: &Timeline, track: usize, label: &str) {
    let event = timeline.tracks[track]
        .events
        .iter()
        .find(|event| event.stream == Stream::Compute && event.activity.to_string() == label);
    let event = event.unwrap();
    let action = event.activity.action();
    let expected = json!({
        "label": label,
        "stream": "compute",
        "track": timeline.tracks[track].name,
        "stage": action.stage,
        "microBatch": action.micro_batch,
        "start": event.start.get(),
        "end": event.end.get(),
        "bytes": event.bytes.get(),
    });
    assert_eq!(saw.0["hit"], expected);
    assert!(saw.0["tooltip"].as_str().unwrap().starts_with(label), "{}", saw.0["tooltip"]);
    assert_eq!(saw.0["followed"], action.micro_batch);
    assert_eq!(saw.0["input"], action.micro_batch.to_string());
    assert_eq!((&saw.0["followedNone"], &saw.0["selectedNone"]), (&Value::Null, &Value::Null));
    assert_eq!(saw.0["selected"], label);
    let details = saw.0["details"].as_str().unwrap();
    assert!(details.starts_with(label) && details.contains("duration"), "{details}");
    let found = |field: &str| saw.0[field].as_str().unwrap();
    assert_eq!((found("foundFirst"), found("matchesThen").split(' ').next()), (label, Some("1")));
    assert!(found("matches").parse::<usize>().unwrap() >= 1);
}

/// What the reader saw.
struct Saw(Value);

impl Saw {
    fn tracks(&self) -> impl Iterator<Item = &Value> {
        self.0["tracks"].as_array().unwrap().iter()
    }

    fn number(&self, path: &str) -> f64 {
        let value = self.0.pointer(&format!("/{path}"));
        value.and_then(Value::as_f64).unwrap_or_else(|| panic!("no number `{path}` in {}", self.0))
    }

    fn end(&self, view: &str) -> f64 {
        self.number(&format!("{view}/end"))
    }

    fn span(&self, view: &str) -> f64 {
        self.end(view) - self.number(&format!("{view}/start"))
    }
}

/// Opens the page of `timelines` and uses it; `target` is a track's number and an action on it. None
/// if there is no browser.
fn explore(timelines: &[&Timeline], target: Option<(usize, &str)>) -> Option<Saw> {
    let drive = include_str!("../browser/drive.js");
    seen(&page(timelines), &(target_script(timelines, target) + drive)).map(Saw)
}

/// Says where the target is: in the middle of its event, on the axis of all timelines.
fn target_script(timelines: &[&Timeline], target: Option<(usize, &str)>) -> String {
    let Some((track, label)) = target else { return String::new() };
    let end = timelines.iter().map(|timeline| timeline.end().as_f64()).fold(0.0, f64::max);
    let mut tracks = timelines.iter().flat_map(|timeline| &timeline.tracks);
    let events = &tracks.nth(track).unwrap().events;
    let event = events.iter().find(|event| event.activity.to_string() == label).unwrap();
    let share = f64::midpoint(event.start.as_f64(), event.end.as_f64()) / end;
    format!("window.target = {{ track: {track}, share: {share} }};\n")
}
