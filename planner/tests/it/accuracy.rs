//! Figures of accuracy in README and the book are what `planner validate` says; `UPDATE_ACCURACY=1` writes them, and
//! the limits of `traces/reference/reached.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use planner_evidence::validation::left_out::source;
use serde_json::{Map, Value, json};
use traces::reference::REFERENCE;

use crate::cli::{planner_within, root};

const BEGIN: &str = "<!-- `planner validate`, by planner/tests/it/accuracy.rs -->\n";
const END: &str = "<!-- end -->\n";

/// Errors may be above those that were reached by this factor.
const ROOM: f64 = 1.03;

/// How long all rows may take: a quarter of a minute where code is optimised, and tests run beside.
const LIMIT: Duration = Duration::from_mins(5);

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The comparison of a file's quantity.
fn compared<'a>(report: &'a Value, file: &str, quantity: &str) -> Option<&'a Value> {
    let is_it = |it: &&Value| it["file"] == file && it["quantity"] == quantity;
    report["files"].as_array().expect("a list").iter().find(is_it)
}

/// A line of the table.
fn line(report: &Value, file: &str, name: &str) -> String {
    let steps = compared(report, file, "step_time_seconds").expect("all have steps");
    let memory = compared(report, file, "peak_memory_bytes");
    let memory = memory.map_or_else(
        || "-".to_owned(),
        |it| format!("{}, {}", it["count"], percent(number(&it["mape"]))),
    );
    let [left_out, mean, median] =
        [&steps["left_out"]["mape"], &steps["mape"], &steps["median_ape"]].map(number).map(percent);
    let bias = format!("{:+.0} %", number(&steps["bias"]) * 100.0).replace("+0 ", "0 ");
    let bias = bias.replace("-0 ", "0 ");
    // Fewer than three runs have no ranks to compare.
    let rank = steps["spearman"].as_f64().map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    let count = &steps["count"];
    format!("| {name} | {count} | {left_out} | {mean} | {median} | {bias} | {rank} | {memory} |\n")
}

/// Mean errors over sources, left out and fitted; over steps; and how many there are of both.
fn means(report: &Value) -> ([f64; 3], [usize; 2]) {
    let mut by_source: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    for (file, ..) in REFERENCE {
        let steps = compared(report, file, "step_time_seconds").expect("all have steps");
        let count = number(&steps["count"]);
        let sums = by_source.entry(source(file)).or_default();
        sums[0] += count;
        sums[1] += count * number(&steps["left_out"]["mape"]);
        sums[2] += count * number(&steps["mape"]);
    }
    let sources = by_source.len();
    let mean = |which: usize| {
        by_source.values().map(|sums| sums[which] / sums[0]).sum::<f64>() / sources as f64
    };
    let [steps, errors] = [0, 2].map(|which| by_source.values().map(|it| it[which]).sum::<f64>());
    ([mean(1), mean(2), errors / steps], [sources, steps as usize])
}

/// Over all groups: how many, the mean and the worst regret, pairs, and those in the right order.
fn regret(of_files: &Value) -> [f64; 5] {
    let mut all = [0.0; 5];
    for file in of_files.as_array().expect("a list") {
        let [groups, mean, worst] = ["groups", "mean", "worst"].map(|it| number(&file[it]));
        all[0] += groups;
        all[1] += groups * mean;
        all[2] = worst.max(all[2]);
        all[3] += number(&file["pairs"]);
        all[4] += number(&file["ordered"]);
    }
    all[1] /= all[0];
    all
}

/// What README says of them.
fn summary(report: &Value) -> String {
    let ([left_out, _, of_steps], [sources, steps]) = means(report);
    let [groups, mean, ..] = regret(&report["regret"]);
    format!(
        "On published runs of a source that was left out of the fit, the mean error of a step's time is {} (the mean of \
         {sources} sources); on the {steps} steps of the fit itself it is {}.\nThe runs used 1 to 11,616 GPUs, and nothing was \
         profiled on them first.\nIn {groups} groups of runs that differ in their layout alone, the layout that a search \
         would choose, with its usual headroom, takes {} longer than the fastest, on average.\n`planner validate` repeats these figures.\n",
        percent(left_out),
        percent(of_steps),
        percent(mean),
    )
}

/// What the book says of them.
fn by_source(report: &Value) -> String {
    let ([left_out, fitted, of_steps], [sources, steps]) = means(report);
    let mut text = format!(
        "If a source is left out of the fit, the steps of that source are predicted with a mean error of {}, averaged over \
         {sources} sources: that is what you can expect of runs of your own.\nWith all sources in the fit it is {}, and {} \
         over all {steps} steps.\nThe runs used 1 to 11,616 GPUs, and nothing was profiled on them first.\n\n| source | steps | mean error, \
         source left out | mean error, fitted | median | bias | rank correlation | memory: rows, error |\n\
         |---|---|---|---|---|---|---|---|\n",
        percent(left_out),
        percent(fitted),
        percent(of_steps),
    );
    for (file, source, _) in REFERENCE {
        text += &line(report, file, source);
    }
    let [groups, mean, worst, pairs, ordered] = regret(&report["regret"]);
    let [_, mean_left_out, ..] = regret(&report["regret_left_out"]);
    write!(
        text,
        "\nThere are {groups} groups of runs that differ in their layout alone.\nIn these, the layout that a search \
         would choose, with its usual headroom, takes {} longer than the fastest measured on average, and {} longer at worst; with the source left out of the \
         fit it is {} on average.\nOf the {pairs} pairs of runs that differ by more than 3 %, {} are predicted in the right \
         order.\n",
        percent(mean),
        percent(worst),
        percent(mean_left_out),
        percent(ordered / pairs),
    )
    .expect("a string takes all");
    let covered = |name: &str, what: &str| {
        let it = &report[name];
        let [contained, half_width] = ["contained", "half_width"].map(|it_is| number(&it[it_is]));
        format!(
            "{} of the {what}, averaged over {} sources (± {})",
            percent(contained),
            it["sources"],
            percent(half_width)
        )
    };
    writeln!(
        text,
        "The 80 % intervals are made of the errors on sources left out of the fit, each of which counts as much.\nOf a source \
         that they were not made of, they contain {}, and {}.",
        covered("intervals", "steps"),
        covered("memory_intervals", "peaks of memory"),
    )
    .expect("a string takes all");
    let rejected = report["fits"]["rejected"].as_array().expect("a list");
    let in_few_bits = rejected.iter().filter(|run| run["few_bits"] == true).count();
    let ended = report["out_of_memory"].as_array().expect("a list");
    let foreseen = ended.iter().filter(|run| run["is_predicted"] == true).count();
    writeln!(
        text,
        "Of {} runs that worked, {} are predicted not to fit ({in_few_bits} of them in 8 or 4 bits); of {} runs that ran out \
         of memory, {foreseen} are.",
        report["fits"]["ran"],
        rejected.len(),
        ended.len(),
    )
    .expect("a string takes all");
    text
}

/// Errors of the steps that are predicted worst, in per cent, the worst first.
fn worst(report: &Value, count: usize) -> Vec<i64> {
    let files = report["files"].as_array().expect("a list").iter();
    let of_runs = files.filter(|it| {
        let is_of_runs = it["file"].as_str().is_some_and(|file| file.starts_with("runs_"));
        is_of_runs && it["quantity"] == "step_time_seconds"
    });
    let rows = of_runs.flat_map(|it| it["rows"].as_array().expect("a list"));
    let error = |row: &Value| Some(row["predicted"].as_f64()? / row["measured"].as_f64()? - 1.0);
    let mut errors: Vec<f64> = rows.filter_map(error).collect();
    errors.sort_by(|one, other| other.abs().total_cmp(&one.abs()));
    errors.iter().take(count).map(|error| (error * 100.0).round() as i64).collect()
}

/// The table of the worst has the ten that are; which they are is told by hand.
#[track_caller]
fn check_worst(report: &Value) {
    let page =
        fs::read_to_string(root().join("docs/src/accuracy.md")).expect("a page that is there");
    let (_, rest) = page.split_once("## Furthest off\n").expect("the worst have a section");
    let rows = rest.lines().take_while(|line| !line.starts_with("## "));
    let cells = rows.filter_map(|line| line.strip_suffix(" % |")?.rsplit_once("| "));
    let numbers = cells.flat_map(|(_, errors)| errors.split(", "));
    let mut told: Vec<i64> = numbers.map(|it| it.parse().expect("a whole per cent")).collect();
    told.sort_by_key(|error| -error.abs());
    assert_eq!(told, worst(report, told.len().max(10)), "docs/src/accuracy.md, furthest off");
}

/// Limits that errors may not grow above.
fn limits(report: &Value) -> String {
    let [_, mean, worst, pairs, ordered] = regret(&report["regret"]);
    let rejected = report["fits"]["rejected"].as_array().map_or(0, Vec::len) as f64;
    let limit = |reached: f64| (reached * ROOM * 1e4).ceil() / 1e4;
    let choices = json!({
        "share_rejected": limit(rejected / number(&report["fits"]["ran"])),
        "mean_regret": limit(mean), "worst_regret": limit(worst),
        "share_disordered": limit(1.0 - ordered / pairs),
    });
    let mut lines = vec![format!("\"choices\": {choices}")];
    for (file, ..) in REFERENCE {
        let mut of_file = Map::new();
        for quantity in ["step_time_seconds", "peak_memory_bytes"] {
            if let Some(it) = compared(report, file, quantity) {
                of_file.insert(quantity.to_owned(), limit(number(&it["mape"])).into());
            }
        }
        lines.push(format!("\"{file}\": {}", Value::from(of_file)));
    }
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// In the accuracy step of CI, whose optimised command takes half as long as the tests' own: `VALIDATED` names the file
/// with its report.
#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn figures_of_accuracy_are_what_validate_says() {
    let is_updated = std::env::var_os("UPDATE_ACCURACY").is_some();
    let report = match std::env::var_os("VALIDATED") {
        Some(path) => serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap(),
        None if is_updated => planner_within(&["validate", "--format", "json"], LIMIT).json(),
        None => return eprintln!("skipped: `VALIDATED` names no report of `planner validate`"),
    };
    for (page, expected) in
        [("README.md", summary(&report)), ("docs/src/accuracy.md", by_source(&report))]
    {
        let path = root().join(page);
        let text = fs::read_to_string(&path).expect("a page that is there");
        let (before, rest) = text.split_once(BEGIN).expect("where figures begin");
        let (found, after) = rest.split_once(END).expect("where they end");
        if is_updated {
            fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).expect(page);
            continue;
        }
        assert_eq!(
            found, expected,
            "{page} has figures of other constants\nhint: UPDATE_ACCURACY=1 cargo test -p planner --test it accuracy"
        );
    }
    check_worst(&report);
    if is_updated {
        let reached = root().join("traces/reference/reached.json");
        fs::write(reached, limits(&report)).expect("reached.json");
    }
}
