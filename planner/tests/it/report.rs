//! Reports as pages: of a search and of a saved plan, in a browser and without one.

use std::fs;

use serde_json::Value;

use crate::bad_input::Workplace;
use crate::chromium::seen;
use crate::cli::planner;

const SEARCH: [&str; 8] =
    ["search", "models/llama-3.1-8b", "--gpus", "32", "--top", "4", "--quiet", "-o"];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// The page of a search, and what is printed in addition to it.
fn searched(place: &Workplace) -> (String, Value) {
    let page = place.path("report.html");
    let run = planner(&[&SEARCH[..], &[&*page, "--format", "json"]].concat());
    let json = run.json();
    (fs::read_to_string(page).unwrap(), json)
}

#[test]
fn a_search_as_a_page() {
    let place = Workplace::new();
    let (page, json) = searched(&place);
    // The name of SVG's elements is no address that anything is loaded from.
    let addresses = page.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http:", "https:", " src=", "@import", "url(", "fetch("] {
        assert!(!addresses.contains(reference), "the page refers to something by `{reference}`");
    }
    let plans = json["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 4);
    // Without scripts: each plan with its time and memory, and what it loses.
    for plan in plans {
        let seconds = plan["step_time_seconds"].as_f64().unwrap();
        let gib = plan["peak_memory_bytes"].as_f64().unwrap() / f64::from(1 << 30);
        assert!(page.contains(&format!("<td>{seconds:.3}</td>")), "{seconds}");
        assert!(page.contains(&format!("<td>{gib:.1}</td>")), "{gib}");
    }
    assert!(page.contains("than the first (") && page.contains("Where the time of a step goes"));
    let again = searched(&place).0;
    assert_eq!(page, again, "the same search makes the same page");

    let Some(saw) = seen(&page, include_str!("../browser/report.js")) else { return };
    assert_eq!(saw["title"], "llama-3.1-8b on 32 GPUs of h100");
    assert_eq!(saw["plans"], 4);
    assert!(saw["others"].as_u64().unwrap() > 4, "{}", saw["others"]);
    assert_eq!((&saw["bars"], &saw["losses"]), (&8.into(), &3.into()));
    // Bars of time reach as far as their steps, the longest to the end.
    let widths: Vec<f64> =
        saw["stacks"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
    let times: Vec<f64> =
        plans.iter().map(|it| it["step_time_seconds"].as_f64().unwrap()).collect();
    let longest = times.iter().copied().fold(0.0, f64::max);
    for (width, time) in widths.iter().zip(&times) {
        assert!((width - 100.0 * time / longest).abs() < 0.1, "{width} for {time} of {longest}");
    }
    assert!(text(&saw["verdict"]).starts_with("B, 2 "), "{}", saw["verdict"]);
    assert!(text(&saw["verdictOfLast"]).starts_with("B, 4 "), "{}", saw["verdictOfLast"]);
    let share = format!("({:.1} %)", (100.0 * (times[3] / times[0] - 1.0)).abs());
    assert!(
        text(&saw["verdictOfLast"]).contains(&share),
        "{} has no {share}",
        saw["verdictOfLast"]
    );
    assert!(text(&saw["pair"]).contains("optimizer state"));
    assert!(text(&saw["verdictAfterClick"]).starts_with("B, 2 "));
    assert_eq!(saw["chosen"], serde_json::json!(["0", "1"]));
    assert_eq!(saw["isWide"], false, "the page is no wider than its window");

    // The frame with the timelines is a page of its own.
    let reader =
        "window.leave({ tracks: window.timeline.tracks.length, text: document.body.innerText });";
    let frame = seen(text(&saw["firstViewer"]), reader).unwrap();
    assert!(frame["tracks"].as_u64().unwrap() >= 2);
    for plan in &plans[..2] {
        let layout = plan["layout"]["pipeline_parallel"].as_u64().unwrap();
        assert!(text(&frame["text"]).contains(&format!("pp{layout}")), "{}", frame["text"]);
    }
}

/// The page of a plan that was saved has what the search's has.
#[test]
fn a_saved_plan_as_a_page() {
    let place = Workplace::new();
    let (of_search, _) = searched(&place);
    let plan = place.path("plan.json");
    assert_eq!(planner(&[&SEARCH[..], &[&*plan]].concat()).code, Some(0));
    let page = place.path("again.html");
    let run = planner(&["report", &plan, "-o", &page]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""));
    let page = fs::read_to_string(page).unwrap();
    let between = |page: &str, start: &str, end: &str| {
        let (_, rest) = page.split_once(start).unwrap();
        rest.split_once(end).unwrap().0.to_owned()
    };
    for (start, end) in [("What fills the memory", "</table>"), ("Where the time of", "</table>")] {
        assert_eq!(between(&page, start, end), between(&of_search, start, end));
    }
    assert_eq!(page.matches("than the first (").count(), 3);
}

#[test]
fn reports_that_cannot_be_written() {
    let place = Workplace::new();
    let plan = place.path("plan.json");
    let args = ["evaluate", "models/llama-3.1-8b", "--gpus", "8", "--layout", "tp8", "--quiet"];
    assert_eq!(planner(&[&args[..], &["-o", &plan]].concat()).code, Some(0));
    place.fails("report {}/plan.json -o {}/page.svg", &["a report is a page", "page.svg"]);
    place.fails("report {}/plan.json", &["--output"]);
    place.fails("report {}/model.json -o {}/page.html", &["model.json"]);
    place.fails("report {}/plan.json -o {}/nowhere/page.html", &["nowhere", "no folder"]);
    // A plan alone has no runners-up, and is a page nevertheless.
    let page = place.path("alone.html");
    let run = planner(&["report", &plan, "-o", &page]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(!fs::read_to_string(page).unwrap().contains("than the first ("));
}
