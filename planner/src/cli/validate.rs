//! `planner validate`.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use planner::validation::accuracy::Accuracy;
use planner::validation::{
    Comparison, Quantity, Validated, compare, compare_kernels, read_rows, validate as hold,
};
use serde::Serialize;

use super::args::{Format, ValidateArgs};
use super::files::read_text;
use super::tables::{percent, render, table};
use super::{Answer, print, print_json};

/// Rows whose predictions are furthest off, of all files, that a table ends with.
const NUM_WORST: usize = 10;

/// Names of groups are cut, so that a row has a hundred columns.
const WIDEST_GROUP: usize = 30;

/// How many terms stand in a line.
const TERMS_OF_A_LINE: usize = 3;

/// Terms of a prediction that are a smaller share of it are left out there.
const LEAST_TERM: f64 = 0.005;

/// The answer as JSON.
#[derive(Serialize)]
struct Report<'a> {
    files: &'a [Comparison],
    skipped: &'a [Skipped],
}

/// A file that holds no runs.
#[derive(Serialize)]
struct Skipped {
    file: String,
    reason: String,
}

pub(crate) fn validate(args: &ValidateArgs) -> anyhow::Result<Answer> {
    let mut comparisons = Vec::new();
    let mut skipped = Vec::new();
    let mut worst = Vec::new();
    for (name, path) in files(&args.folder, "kernels")? {
        let compared = read_text(&path).and_then(|text| Ok(compare_kernels(&name, &text)?));
        match compared {
            Ok(comparison) => comparisons.extend(comparison),
            Err(error) => skipped.push(Skipped { file: name, reason: format!("{error:#}") }),
        }
    }
    for (name, path) in files(&args.folder, "runs")? {
        let rows = read_text(&path).and_then(|text| Ok(read_rows(&name, &text)?));
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                skipped.push(Skipped { file: name, reason: format!("{error:#}") });
                continue;
            }
        };
        let validated = hold(&rows);
        for quantity in [Quantity::StepTimeSeconds, Quantity::PeakMemoryBytes] {
            comparisons.extend(compare(&name, quantity, &validated));
        }
        worst.extend(validated.into_iter().map(|run| (name.clone(), run)));
    }
    ensure!(
        !comparisons.is_empty(),
        "`{}` has no measurements\nhint: JSON lists of runs or vTrain's tables in `runs`, tables of kernels in \
         `kernels`",
        args.folder.display()
    );
    match args.format {
        Format::Json => print_json(&Report { files: &comparisons, skipped: &skipped })?,
        Format::Table => print(&as_text(&comparisons, &skipped, worst))?,
    }
    Ok(Answer::Found)
}

/// The files of a folder within another with their names, in the order of these; none if it is not there.
fn files(outer: &Path, inner: &str) -> anyhow::Result<Vec<(String, std::path::PathBuf)>> {
    if !outer.is_dir() {
        bail!(
            "there is no folder `{}`\nhint: name one that has `runs` with measured steps, or `kernels`",
            outer.display()
        );
    }
    let folder = outer.join(inner);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let reading = || format!("reading `{}`", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            found.push((name.to_string_lossy().into_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

fn as_text(
    comparisons: &[Comparison],
    skipped: &[Skipped],
    runs: Vec<(String, Validated)>,
) -> String {
    let headings = ["file", "of", "rows", "predicted", "mean", "median", "worst", "bias", "rank"];
    let mut rows = table(&headings, &["file", "of"]);
    let cells = |accuracy: &Accuracy| {
        [
            accuracy.count.to_string(),
            percent(accuracy.mape),
            percent(accuracy.median_ape),
            percent(accuracy.worst_ape),
            format!("{:+.1} %", accuracy.bias * 100.0),
            accuracy.spearman.map_or_else(|| "-".to_owned(), |rank| format!("{rank:.3}")),
        ]
    };
    for comparison in comparisons {
        let all = [
            comparison.file.clone(),
            in_words(comparison.quantity).to_owned(),
            comparison.rows.len().to_string(),
        ];
        rows.add_row(all.into_iter().chain(cells(&comparison.accuracy)));
        for (group, accuracy) in comparison.groups.iter().filter(|_| comparison.groups.len() > 1) {
            let group: String = group.chars().take(WIDEST_GROUP).collect();
            let of_group = [format!("  {group}"), String::new(), String::new()];
            rows.add_row(of_group.into_iter().chain(cells(accuracy)));
        }
    }
    let skipped =
        skipped.iter().map(|Skipped { file, reason }| format!("skipped `{file}`: {reason}\n"));
    [render(&rows), worst(runs)].into_iter().chain(skipped).collect()
}

const fn in_words(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::StepTimeSeconds => "step time",
        Quantity::PeakMemoryBytes => "memory",
        Quantity::LatencySeconds => "latency",
    }
}

/// The steps whose times are furthest off, with the terms of their predictions.
fn worst(runs: Vec<(String, Validated)>) -> String {
    let mut off: Vec<_> = runs
        .into_iter()
        .filter_map(|(file, run)| {
            let (measured, predicted) = (run.step_time_seconds.ok()??, run.predicted.ok()?);
            let error = predicted.step_time_seconds / measured - 1.0;
            Some((error, file, run.id, measured, predicted))
        })
        .collect();
    off.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    if off.is_empty() {
        return String::new();
    }
    let lines = off.into_iter().take(NUM_WORST).map(|(error, file, id, measured, predicted)| {
        let step = predicted.step_time_seconds;
        let terms = predicted.breakdown.parts().into_iter();
        let terms = terms.filter(|(_, seconds)| *seconds > LEAST_TERM * step);
        let terms: Vec<String> =
            terms.map(|(name, seconds)| format!("{name} {seconds:.3} s")).collect();
        let lines: Vec<String> =
            terms.chunks(TERMS_OF_A_LINE).map(|line| line.join(", ")).collect();
        format!(
            "  {id} ({file}): {step:.3} s, not {measured:.3} s ({:+.0} %)\n    {}\n",
            error * 100.0,
            lines.join(",\n    ")
        )
    });
    "\nfurthest off:\n".to_owned() + &lines.collect::<String>()
}
