//! Chrome traces: they come back as they were, and viewers can show them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use ir::schedule::{ActionKind, ScheduleKind};
use proptest::prelude::*;
use serde_json::Value;
use traces::chrome::{read, write};
use traces::timeline::Timeline;

use crate::samples::{any_timeline, one_event, pipeline};

#[test]
fn a_timeline_is_written_an_event_a_line() {
    let expected = r#"{"displayTimeUnit":"ms",
"otherData":{"format":"planner timeline","version":1,"title":"one","tracks":[
{"name":"rank 0","rank":0,"num_ranks":1}]},
"traceEvents":[
{"ph":"M","pid":0,"tid":1,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":0,"tid":1,"name":"process_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"compute"}},
{"ph":"M","pid":0,"tid":1,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"X","pid":0,"tid":1,"ts":0.001,"dur":1002.002,"name":"0F0","cat":"forward","args":{"stage":0,"micro_batch":0,"bytes":0}}
]}
"#;
    assert_eq!(write(&one_event()), expected);
}

#[test]
fn schedules_of_all_families_come_back_and_viewers_can_show_them() {
    for kind in ScheduleKind::ALL {
        let timeline = pipeline(kind, 4, 10);
        let text = write(&timeline);
        assert_eq!(read(&text).unwrap(), timeline, "{kind}");
        let trace = Trace::new(&text);
        assert_eq!(trace.num_flows(), timeline.num_messages(), "{kind}");
    }
}

#[test]
fn nothing_and_one_event_come_back() {
    for timeline in [Timeline::default(), one_event()] {
        assert_eq!(read(&write(&timeline)).unwrap(), timeline);
    }
}

#[test]
fn an_error_says_what_is_wrong_and_where() {
    check("", "not a timeline: EOF while parsing a value at line 1 column 0");
    check("{\n1", "not a timeline: key must be a string at line 2 column 1");
    let foreign = |found: &str| {
        format!(
            "not a timeline of this program: `otherData.format` is {found}, not \"planner timeline\"; \
             only traces that this program wrote can be read"
        )
    };
    check("[]", &foreign("absent"));
    check("{}", &foreign("absent"));
    check(r#"{"traceEvents": [{"ph": "B"}], "otherData": {}}"#, &foreign("absent"));
    check(r#"{"otherData": {"format": "other"}}"#, &foreign("\"other\""));
    let other =
        |text: &str| format!(r#"{{"otherData": {{"format": "planner timeline", {text}}}}}"#);
    let version = "this program reads version 1";
    check(&other(r#""version": 2"#), &format!("`otherData.version` is 2; {version}"));
    check(&other(r#""title": """#), &format!("`otherData.version` is absent; {version}"));
    check(
        &other(r#""version": 1, "title": """#),
        "not a timeline: missing field `tracks` at line 1 column 71",
    );
    let of_event = |from: &str, to: &str| {
        let text = write(&one_event());
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    check(
        &of_event(r#""pid":0,"tid":1,"ts""#, r#""pid":1,"tid":1,"ts""#),
        "`traceEvents[4]`: `pid` is 1, but there are 1 tracks",
    );
    check(
        &of_event(r#""tid":1,"ts""#, r#""tid":0,"ts""#),
        "`traceEvents[4]`: `tid` is 0, which is no stream",
    );
    check(&of_event(r#""tid":1,"ts""#, r#""ts""#), "`traceEvents[4]`: `tid` is missing");
    check(
        &of_event(r#""ph":"X""#, r#""ph":"B""#),
        "`traceEvents[4]`: `ph` is `B`, which is not known here",
    );
    check(&of_event("0F0", "0Q0"), "`traceEvents[4]`: `name` is `0Q0`, which is not known here");
    for time in ["-1", "1e3", "0.0001", "null", "\"1\"", "1."] {
        let text = of_event("0.001", time);
        let error = read(&text).unwrap_err().to_string();
        assert!(
            error.starts_with("`traceEvents[4]`: `ts` is") || error == "not a timeline",
            "{error}"
        );
    }
    check(
        &of_event("1002.002", "-1"),
        "`traceEvents[4]`: `dur` is -1, but must be microseconds from 0 on with at most three \
         decimals",
    );
    for time in ["9007199254741", "99999999999999999999999"] {
        check(
            &of_event("0.001", time),
            &format!(
                "`traceEvents[4]`: `ts` is {time}, which ends after 9007199254740 microseconds, the \
                 latest time"
            ),
        );
    }
    // Begun at 0.001, it ends at the latest time, and a nanosecond later.
    read(&of_event("1002.002", "9007199254740.991")).unwrap();
    check(
        &of_event("1002.002", "9007199254740.992"),
        "`traceEvents[4]`: `dur` is 9007199254740.992, which ends after 9007199254740 microseconds, \
         the latest time",
    );
    let event = r#"{"ph":"X","pid":0,"tid":1,"ts":0,"dur":0,"name":"0F1"}"#;
    check(
        &of_event("\n]}\n", &format!(",\n{event}]}}")),
        "`traceEvents[5]`: `ts` is earlier than that of its track before it",
    );
    check(
        &of_event(r#""num_ranks":1"#, r#""num_ranks":-1"#),
        "not a timeline: invalid value: integer `-1`, expected u32 at line 3 column 40",
    );
}

/// The error's message, with its cause.
fn check(text: &str, expected: &str) {
    let error = read(text).unwrap_err();
    let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
    assert_eq!(format!("{error}{cause}"), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_timeline_comes_back(timeline in any_timeline()) {
        let text = write(&timeline);
        prop_assert_eq!(read(&text).unwrap(), timeline);
    }

    #[test]
    fn any_trace_keeps_the_laws_of_its_format(timeline in any_timeline()) {
        _ = Trace::new(&write(&timeline));
    }

    #[test]
    fn changed_text_is_refused_or_read(
        timeline in any_timeline(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..4),
    ) {
        let mut text: Vec<char> = write(&timeline).chars().collect();
        for (index, c) in changes {
            let index = index.index(text.len());
            text[index] = c;
        }
        let text: String = text.into_iter().collect();
        _ = read(&text);
        _ = read(&text.chars().take(text.len() / 2).collect::<String>());
    }

    #[test]
    fn any_number_is_refused_or_read(
        field in prop::sample::select(vec!["pid", "tid", "ts", "dur"]),
        number in prop_oneof![any::<f64>().prop_map(|n| n.to_string()), any::<i64>().prop_map(|n| n.to_string()), "[0-9.eE+-]{1,30}"],
    ) {
        let text = write(&one_event());
        let start = text.rfind(&format!("\"{field}\":")).unwrap() + field.len() + 3;
        let end = start + text[start..].find(',').unwrap();
        _ = read(&format!("{}{number}{}", &text[..start], &text[end..]));
    }
}

/// A trace whose events have the fields that their kind needs.
struct Trace {
    /// Start and end of the slices of each process and thread, in nanoseconds.
    slices: BTreeMap<(u64, u64), Vec<(u64, u64)>>,
    flows: BTreeMap<u64, Vec<(char, u64, u64, u64)>>,
}

impl Trace {
    fn new(text: &str) -> Self {
        let trace: Value = serde_json::from_str(text).unwrap();
        assert_eq!(trace["displayTimeUnit"], "ms");
        let mut names = BTreeSet::new();
        let mut counters: BTreeMap<u64, u64> = BTreeMap::new();
        let mut found = Self { slices: BTreeMap::new(), flows: BTreeMap::new() };
        // Digits instead of floats, which do not hold all that is written.
        let events = trace["traceEvents"].as_array().unwrap();
        let lines = text.lines().filter(|line| line.starts_with("{\"ph\""));
        assert_eq!(lines.clone().count(), events.len());
        for (event, line) in events.iter().zip(lines) {
            let number = |field: &str| event[field].as_u64().unwrap_or_else(|| panic!("{line}"));
            let (pid, tid) = (number("pid"), number("tid"));
            let nanos = |field: &str| nanos(line, field);
            match event["ph"].as_str().unwrap() {
                "M" => {
                    assert!(found.slices.is_empty(), "names come before events");
                    let is_name = event["name"].as_str().unwrap().ends_with("_name");
                    let value = &event["args"][if is_name { "name" } else { "sort_index" }];
                    assert!(if is_name { value.is_string() } else { value.is_u64() }, "{line}");
                    if event["name"] == "thread_name" {
                        assert!(names.insert((pid, tid)), "{line}");
                    }
                }
                "X" => {
                    let (start, duration) = (nanos("ts"), nanos("dur"));
                    assert!(event["name"].is_string() && event["cat"].is_string(), "{line}");
                    let slices = found.slices.entry((pid, tid)).or_default();
                    slices.push((start, start + duration));
                }
                "C" => {
                    assert_eq!(event["name"], "memory");
                    assert!(event["args"]["bytes"].is_u64(), "{line}");
                    let time = nanos("ts");
                    let last = counters.insert(pid, time);
                    assert!(last.is_none_or(|last| last <= time), "{line}");
                }
                end @ ("s" | "f") => {
                    assert!(end == "s" || event["bp"] == "e", "{line}");
                    let end = end.chars().next().unwrap();
                    let flow = found.flows.entry(number("id")).or_default();
                    flow.push((end, pid, tid, nanos("ts")));
                }
                other => panic!("`{other}` is not written"),
            }
        }
        for thread in found.slices.keys() {
            assert!(names.contains(thread), "{thread:?} has no name");
        }
        found.check_flows();
        found.check_slices_are_apart();
        found
    }

    /// Each message starts once and ends once, later, and both lie in a slice.
    fn check_flows(&self) {
        for (id, ends) in &self.flows {
            let [('s', pid, tid, leaves), ('f', to_pid, to_tid, arrives)] = ends[..] else {
                panic!("flow {id}: {ends:?}");
            };
            assert!(leaves <= arrives, "flow {id}");
            for (pid, tid, time) in [(pid, tid, leaves), (to_pid, to_tid, arrives)] {
                let slices = &self.slices[&(pid, tid)];
                assert!(slices.iter().any(|(start, end)| (*start..=*end).contains(&time)));
            }
        }
    }

    /// On each thread one slice comes after the other.
    fn check_slices_are_apart(&self) {
        for (thread, slices) in &self.slices {
            for pair in slices.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "{thread:?} at {}", pair[1].0);
            }
        }
    }

    fn num_flows(&self) -> usize {
        self.flows.len()
    }
}

/// A time of an event, from its line.
fn nanos(line: &str, field: &str) -> u64 {
    let (_, rest) = line.split_once(&format!("\"{field}\":")).unwrap();
    let text = rest.split([',', '}']).next().unwrap();
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{decimals:0<3}").parse().unwrap()
}

trait Messages {
    fn num_messages(&self) -> usize;
}

impl Messages for Timeline {
    fn num_messages(&self) -> usize {
        let events = self.tracks.iter().flat_map(|track| &track.events);
        events.filter(|event| event.activity.kind().is_some_and(ActionKind::is_send)).count()
    }
}
