//! Pages: whole, small, and safe whatever the titles say. What they do is in `browser`.

use ir::schedule::ScheduleKind;
use ir::units::Nanos;
use traces::gantt::TimeAxis;
use traces::html::{self, PageOptions};
use traces::timeline::{Timeline, Track};

use crate::samples::{one_event, pipeline};

fn page(timelines: &[&Timeline]) -> String {
    html::page(timelines, &PageOptions::default()).unwrap()
}

#[test]
fn a_page_needs_nothing_else() {
    let timeline = pipeline(ScheduleKind::OneFOneB, 4, 8);
    let page = page(&[&timeline, &timeline]);
    assert!(page.starts_with("<!DOCTYPE html>\n"));
    assert!(page.ends_with("</html>\n"));
    for reference in ["http:", "https:", "src=", "@import", "url(", "import(", "fetch("] {
        assert!(!page.contains(reference), "the page refers to something by `{reference}`");
    }
    assert!(!page.contains("<!-- "), "a place of the page is empty");
}

#[test]
fn the_same_timelines_make_the_same_page() {
    let timeline = pipeline(ScheduleKind::DualPipe, 4, 8);
    assert_eq!(page(&[&timeline]), page(&[&timeline.clone()]));
}

#[test]
fn ranks_are_in_a_table_that_needs_no_script() {
    let page = page(&[&pipeline(ScheduleKind::GPipe, 2, 2)]);
    for text in [
        "<caption>gpipe, 2 ranks, 2 micro-batches: step of 11.41 ms, 35.1 % bubble</caption>",
        "<th scope=\"col\">forward</th><th scope=\"col\">backward</th>",
        "<th scope=\"row\">pipeline rank 1</th><td>8 to 15</td>",
        "<td>52.00 GiB</td><td>80.00 GiB</td>",
    ] {
        assert!(page.contains(text), "{text}\n{}", &page[page.find("<caption>").unwrap()..][..900]);
    }
}

/// Where time has no unit, no part of the page has one.
#[test]
fn units_are_units_everywhere() {
    let timeline = pipeline(ScheduleKind::GPipe, 2, 2);
    let time_axis = TimeAxis::Units(Nanos::new(1));
    let page = html::page(&[&timeline], &PageOptions { time_axis, ..PageOptions::default() });
    let page = page.unwrap();
    assert!(
        page.contains(": step of 11411340 units, "),
        "{}",
        &page[page.find("<caption>").unwrap()..][..200]
    );
    assert!(page.contains("\"unit_nanoseconds\":1,"));
    let table = &page[page.find("<table>").unwrap()..page.find("</table>").unwrap()];
    assert!(!table.contains(" ms<") && !table.contains("GiB"), "{table}");
}

#[test]
fn titles_and_names_are_texts() {
    let hostile = "</script><script>alert(1)</script><!-- data --> \"'&\u{2028}\0é";
    let mut timeline = one_event();
    timeline.title = hostile.into();
    timeline.tracks[0].name = hostile.into();
    let quiet = page(&[&one_event()]);
    let page = page(&[&timeline]);
    assert!(!page.contains("<script>alert"));
    for tag in ["<script", "</script", "<!--"] {
        assert_eq!(page.matches(tag).count(), quiet.matches(tag).count(), "{tag}");
    }
}

#[test]
fn nothing_makes_a_page() {
    for timelines in [
        vec![],
        vec![Timeline::default()],
        vec![Timeline { tracks: vec![Track::default()], ..Timeline::default() }],
        vec![one_event()],
    ] {
        let timelines: Vec<&Timeline> = timelines.iter().collect();
        assert!(page(&timelines).ends_with("</html>\n"));
    }
}

/// With messages and the collectives of each pass: 64 x 256 x 10 events.
#[test]
fn a_large_step_is_a_page_of_less_than_two_megabytes() {
    let timeline = pipeline(ScheduleKind::ZbH1, 64, 256);
    let events: usize = timeline.tracks.iter().map(|track| track.events.len()).sum();
    assert!(events > 64 * 256 * 9, "{events} events");
    let size = page(&[&timeline]).len();
    assert!(size < 2_000_000, "{size} bytes for {events} events");
}
