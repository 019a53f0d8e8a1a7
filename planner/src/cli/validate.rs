//! `planner validate`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ir::units::Bytes;
use planner_evidence::calibration::held_out::{HeldOutErrors, held_out_errors};
use planner_evidence::validation::accuracy::Accuracy;
use planner_evidence::validation::choices::{Fits, Regret};
use planner_evidence::validation::intervals::{Coverage, coverage};
use planner_evidence::validation::left_out::source;
use planner_evidence::validation::{
    ComparedRow, Comparison, Quantity, Validated, compare, compare_kernels, read_rows,
    validate as hold,
};
use serde::Serialize;
use traces::reference::REFERENCE;
use traces::scatter::{self, Panel, Series};
use traces::{ImageFormat, Paper};

use super::answer::Answer;
use super::args::{Format, ValidateArgs};
use super::files::read_framework;
use super::measurements::{Limits, Tables, read_limits};
use super::picture::image_format;
use super::tables::{percent, render, table, text_table};
use command_line::destination::{check_output, stdout_is_free, write_output};

/// Largest number of rows without a prediction that are listed, over all files.
const NUM_NAMED: usize = 30;

/// Number of rows with the largest errors that are listed, over all files.
const NUM_WORST: usize = 10;

/// Number of characters to which names of groups are cut, so that a row fits into 100 columns.
const WIDEST_GROUP: usize = 30;

/// Number of terms of a prediction that are shown in a line.
const TERMS_OF_A_LINE: usize = 3;

/// Share of a prediction below which a term is not listed.
const LEAST_TERM: f64 = 0.005;

/// Relative error up to which a prediction lies in the picture's band.
const BAND: f64 = 0.1;

const WIDTH_OF_A_PANEL: u32 = 560;

/// JSON output of `validate`.
#[derive(Default, Serialize)]
struct ValidationReport {
    files: Vec<Comparison>,
    out_of_memory: Vec<OutOfMemory>,
    /// Coverage of the intervals of step times; absent if no step was predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    intervals: Option<Coverage>,
    /// Coverage of the intervals of peak memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_intervals: Option<Coverage>,
    /// Regret, by file, of choosing between layouts of one problem by prediction.
    regret: Vec<Regret>,
    /// Regret with constants fitted without each file's source.
    regret_left_out: Vec<Regret>,
    /// Whether runs that worked are predicted to fit.
    fits: Fits,
    /// Errors after a calibration on a few steps, by file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after_steps: Vec<(String, HeldOutErrors)>,
    skipped: Vec<Skipped>,
}

/// A file that could not be read as runs.
#[derive(Serialize)]
struct Skipped {
    file: String,
    reason: String,
}

/// A run that ran out of memory, and whether that was predicted.
#[derive(Serialize)]
struct OutOfMemory {
    file: String,
    id: String,
    predicted_bytes: Bytes,
    capacity_bytes: Bytes,
    is_predicted: bool,
}

impl OutOfMemory {
    fn of(file: &str, validated: &Validated) -> Option<Self> {
        let Validated { run, predicted, .. } = validated;
        let predicted = predicted.as_ref().ok().filter(|_| run.ran_out_of_memory)?;
        let (predicted_bytes, capacity_bytes) =
            (predicted.memory.total(), predicted.memory_capacity);
        let is_predicted = predicted_bytes > capacity_bytes;
        let (file, id) = (file.to_owned(), run.id.clone());
        Some(Self { file, id, predicted_bytes, capacity_bytes, is_predicted })
    }
}

impl ValidationReport {
    /// Adds the predictions of a file's runs.
    fn add(&mut self, file: &str, validated: &[Validated]) {
        for quantity in [Quantity::StepTimeSeconds, Quantity::PeakMemoryBytes] {
            self.files.extend(compare(file, quantity, validated));
        }
        self.out_of_memory.extend(validated.iter().filter_map(|run| OutOfMemory::of(file, run)));
        self.regret.extend(Regret::of(file, validated));
        self.regret_left_out.extend(Regret::left_out(file, validated));
        self.fits.add(file, validated);
    }

    fn skip(&mut self, file: String, error: &anyhow::Error) {
        self.skipped.push(Skipped { file, reason: format!("{error:#}") });
    }
}

/// Progress bar on stderr; hidden if stderr is not a terminal or the output is JSON.
fn progress(files: usize, format: Format) -> ProgressBar {
    let target = match format {
        Format::Table => ProgressDrawTarget::stderr(),
        Format::Json => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(files as u64), target);
    match ProgressStyle::with_template("predicting {bar:40} {pos}/{len} files  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

pub(crate) fn validate(args: &ValidateArgs) -> anyhow::Result<Answer> {
    let picture = match &args.output {
        Some(path) => {
            check_output(path, &[])?;
            Some((path, image_format(path, "accuracy")?))
        }
        None => None,
    };
    // The limits are read first, so that a mistake in them is reported before the predictions, which take long.
    let limits = match &args.at_most {
        Some(path) => Some((path, read_limits(path)?)),
        None => None,
    };
    let framework = args.framework.as_deref().map(read_framework).transpose()?;
    let tables = Tables::of(args.folder.as_deref())?;
    let mut report = ValidationReport::default();
    let mut all: Vec<(String, Validated)> = Vec::new();
    for (name, text) in tables.kernels {
        match text.and_then(|text| Ok(compare_kernels(&name, &text)?)) {
            Ok(comparison) => report.files.extend(comparison),
            Err(error) => report.skip(name, &error),
        }
    }
    let bar = progress(tables.runs.len(), args.format);
    for (name, text) in tables.runs {
        bar.set_message(name.clone());
        bar.inc(1);
        let rows = match text.and_then(|text| Ok(read_rows(&name, &text)?)) {
            Ok(rows) => rows,
            Err(error) => {
                report.skip(name, &error);
                continue;
            }
        };
        let validated = hold(&name, &rows, framework.as_ref());
        report.add(&name, &validated);
        report.after_steps.extend(args.after_steps.and_then(|steps| {
            Some((name.clone(), held_out_errors(&name, &rows, steps, framework.as_ref())?))
        }));
        all.extend(validated.into_iter().map(|run| (name.clone(), run)));
    }
    bar.finish_and_clear();
    check_compared(args.folder.as_deref().unwrap_or(Path::new(".")), &report)?;
    let covered = |quantity| Some(coverage(quantity, all.iter())).filter(|it| it.rows > 0);
    report.intervals = covered(Quantity::StepTimeSeconds);
    report.memory_intervals = covered(Quantity::PeakMemoryBytes);
    if stdout_is_free(&args.output) {
        args.format.print(&report, || as_text(&report, &all))?;
    }
    if let Some((path, format)) = picture {
        write_output(path, &scatter_plot(format, &report.files)?)?;
    }
    if let Some((path, limits)) = &limits {
        check_limits(path, limits, &report)?;
    }
    Ok(Answer::Found)
}

/// Fails if nothing was compared, with the reason for each file and row.
fn check_compared(folder: &Path, report: &ValidationReport) -> anyhow::Result<()> {
    if report.files.iter().any(|it| it.accuracy.count > 0) {
        return Ok(());
    }
    let folder = folder.display();
    let files = report.skipped.iter().map(|it| format!("  `{}`: {}\n", it.file, it.reason));
    let reasons = files.collect::<String>() + &not_predicted(&report.files);
    ensure!(
        !reasons.is_empty(),
        "`{folder}` has no measurements\nhint: JSON lists of runs or vTrain's tables go into `{folder}/runs`, tables of \
         kernels into `{folder}/kernels`"
    );
    bail!(
        "nothing in `{folder}` could be compared:\n{}\nhint: `planner validate --help` says what is read",
        reasons.trim_matches('\n')
    )
}

/// Scatter plot of predictions against measurements, one panel for each quantity.
fn scatter_plot(format: ImageFormat, comparisons: &[Comparison]) -> anyhow::Result<Vec<u8>> {
    let quantities = [
        (Quantity::StepTimeSeconds, "s", 1.0),
        (Quantity::PeakMemoryBytes, "GiB", f64::from(1_u32 << 30)),
        (Quantity::LatencySeconds, "s", 1.0),
    ];
    let mut panels: Vec<Panel> = Vec::new();
    for (quantity, symbol, unit) in quantities {
        let of = comparisons.iter().filter(|comparison| comparison.quantity == quantity);
        let series: Vec<Series> = of
            .map(|comparison| {
                let points = comparison.rows.iter().filter_map(|row| match row {
                    ComparedRow::Predicted { measured, predicted, .. } => {
                        Some([measured / unit, predicted / unit])
                    }
                    ComparedRow::Unsupported { .. } => None,
                });
                Series { name: source_name(&comparison.file), points: points.collect() }
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        if !series.is_empty() {
            panels.push(Panel { name: format!("{} ({symbol})", quantity.describe()), series });
        }
    }
    let title = "Predicted against measured, without profiling";
    let width = WIDTH_OF_A_PANEL * panels.len().max(1) as u32;
    let paper = Paper { width, ..Paper::default() };
    Ok(scatter::draw(title, &panels, BAND, paper)?.file(format)?)
}

/// Name of a source: as in the README for sources that ship; otherwise the file's name without its ending.
fn source_name(file: &str) -> String {
    let own = || file.rsplit_once('.').map_or(file, |(name, _)| name);
    let shipped = REFERENCE.into_iter().find(|(known, ..)| *known == file);
    shipped.map_or_else(own, |(_, source, _)| source).to_owned()
}

/// Metrics of decisions by prediction, under their names in a file of limits.
fn choices(regret: &[Regret], fits: &Fits) -> BTreeMap<&'static str, f64> {
    let mut choices =
        BTreeMap::from([("share_rejected", fits.rejected.len() as f64 / fits.ran.max(1) as f64)]);
    if let Some(all) = regret.iter().cloned().reduce(Regret::and) {
        choices.insert("mean_regret", all.mean);
        choices.insert("worst_regret", all.worst);
        choices.insert("share_disordered", 1.0 - all.share_ordered());
    }
    choices
}

/// Entry of a file of limits for metrics of decisions.
const CHOICES: &str = "choices";

/// Fails if a file with a limit was not compared, or if its error exceeds the limit.
fn check_limits(path: &Path, limits: &Limits, report: &ValidationReport) -> anyhow::Result<()> {
    let choices = choices(&report.regret, &report.fits);
    let mut above = Vec::new();
    for (file, by_quantity) in limits {
        for (quantity, most) in by_quantity {
            let is_it = |it: &&Comparison| it.file == *file && it.quantity.name() == quantity;
            let found = if file == CHOICES {
                choices.get(quantity.as_str()).copied()
            } else {
                report.files.iter().find(is_it).map(|comparison| comparison.accuracy.mape)
            };
            match found {
                Some(found) if found <= *most => {}
                Some(found) => above.push(format!(
                    "{file}, {quantity}: {}, at most {}",
                    percent(found),
                    percent(*most)
                )),
                None => above.push(format!("{file}, {quantity}: not compared")),
            }
        }
    }
    ensure!(above.is_empty(), "errors are above `{}`:\n  {}", path.display(), above.join("\n  "));
    Ok(())
}

fn as_text(report: &ValidationReport, runs: &[(String, Validated)]) -> String {
    let skipped = report.skipped.iter();
    let skipped = skipped.map(|it| format!("skipped `{}`: {}\n", it.file, it.reason));
    [
        describe_accuracy(&report.files),
        "\n".to_owned(),
        of_sources(&report.files),
        describe_coverage(report.intervals.as_ref(), "steps"),
        describe_coverage(report.memory_intervals.as_ref(), "peaks of memory"),
        describe_out_of_memory(&report.out_of_memory),
        describe_fits(&report.fits),
        describe_regret(&report.regret, &report.regret_left_out),
        of_held_out(&report.after_steps),
        worst(runs),
        not_predicted(&report.files),
        skipped.collect::<Vec<_>>().concat(),
    ]
    .concat()
}

/// Table of errors by file and quantity, and by groups within these.
fn describe_accuracy(comparisons: &[Comparison]) -> String {
    let row = |start: [String; 3], accuracy: &Accuracy, left_out: String| {
        let cells = if accuracy.count == 0 {
            ["0", "-", "-", "-", "-", "-", "-"].map(str::to_owned)
        } else {
            [
                accuracy.count.to_string(),
                percent(accuracy.mape),
                left_out,
                percent(accuracy.median_ape),
                percent(accuracy.worst_ape),
                format!("{:+.1} %", accuracy.bias * 100.0),
                accuracy.spearman.map_or_else(|| "-".to_owned(), |rank| format!("{rank:.3}")),
            ]
        };
        start.into_iter().chain(cells)
    };
    let headings =
        ["file", "of", "rows", "predicted", "mean", "left out", "median", "worst", "bias", "rank"];
    let mut rows = table(&headings, &["file", "of"]);
    for comparison in comparisons {
        let Comparison { file, quantity, accuracy, left_out, groups, .. } = comparison;
        let start =
            [file.clone(), quantity_name(*quantity).to_owned(), comparison.rows.len().to_string()];
        rows.add_row(row(start, accuracy, percent(left_out.mape)));
        for (group, accuracy) in groups.iter().filter(|_| groups.len() > 1) {
            let group: String = group.chars().take(WIDEST_GROUP).collect();
            let start = [format!("  {group}"), String::new(), String::new()];
            rows.add_row(row(start, accuracy, String::new()));
        }
    }
    render(&rows)
}

fn describe_coverage(coverage: Option<&Coverage>, what: &str) -> String {
    let Some(coverage) = coverage else { return String::new() };
    format!(
        "{} intervals, each derived from the other sources here, of +- {} in the mean, contain {} of the {what}, in the \
         mean of {} sources ({} by thirds, the narrowest first); the intervals of predictions contain {}\n",
        percent(coverage.share),
        percent(coverage.half_width),
        percent(coverage.contained),
        coverage.sources,
        coverage.contained_by_width.map(percent).join(", "),
        percent(coverage.contained_as_shipped),
    )
}

/// Number of runs out of memory that are predicted to be out of memory, and number of those that are not.
fn describe_out_of_memory(runs: &[OutOfMemory]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let missed = runs.iter().filter(|run| !run.is_predicted).map(|run| {
        let [needed, capacity] = [run.predicted_bytes, run.capacity_bytes].map(Bytes::as_gib);
        format!("  {} ({}): {needed:.1} GiB predicted, {capacity:.1} GiB there\n", run.id, run.file)
    });
    let num_predicted = runs.iter().filter(|run| run.is_predicted).count();
    let count = runs.len();
    format!("{num_predicted} of {count} runs that ran out of memory are predicted not to fit\n")
        + &missed.collect::<String>()
}

/// Mean errors of step times over sources: with all sources in the fit, and with each source left out of it.
fn of_sources(comparisons: &[Comparison]) -> String {
    let mut by_source: BTreeMap<&str, [f64; 3]> = BTreeMap::new();
    let of_steps = comparisons.iter().filter(|it| it.quantity == Quantity::StepTimeSeconds);
    for Comparison { file, accuracy, left_out, .. } in of_steps.filter(|it| it.accuracy.count > 0) {
        let count = accuracy.count as f64;
        let sums = by_source.entry(source(file)).or_default();
        let more = [count, accuracy.mape * count, left_out.mape * count];
        for (sum, more) in sums.iter_mut().zip(more) {
            *sum += more;
        }
    }
    if by_source.is_empty() {
        return String::new();
    }
    let sources = by_source.len() as f64;
    let mean = |which: usize| by_source.values().map(|it| it[which] / it[0]).sum::<f64>() / sources;
    let [steps, errors] = [0, 1].map(|which| by_source.values().map(|it| it[which]).sum::<f64>());
    format!(
        "step time, mean error: {} over {sources} sources, each left out of the fit; {} with all in it; {} over \
         {steps} steps\n",
        percent(mean(2)),
        percent(mean(1)),
        percent(errors / steps),
    )
}

/// Table of errors before and after calibrations on a few steps, by file and as a mean over files.
fn of_held_out(files: &[(String, HeldOutErrors)]) -> String {
    let Some((_, first)) = files.first() else { return String::new() };
    let mean = |of: fn(&HeldOutErrors) -> f64| {
        percent(files.iter().map(|(_, errors)| of(errors)).sum::<f64>() / files.len() as f64)
    };
    let of_file = |(file, errors): &(String, HeldOutErrors)| {
        [file.clone(), errors.rows.to_string(), percent(errors.before), percent(errors.after)]
    };
    let means =
        ["mean of files".to_owned(), String::new(), mean(|it| it.before), mean(|it| it.after)];
    let rows = files.iter().map(of_file).chain([means]);
    format!(
        "\nerrors of step times before and after a calibration on {} of each framework and kind of GPU, which starts from \
         constants fitted without the source\n\n{}",
        if first.steps == 1 { "one step".to_owned() } else { format!("{} steps", first.steps) },
        text_table(["file", "others", "before", "after"], &["file"], rows)
    )
}

/// Number of runs that worked but are predicted not to fit.
fn describe_fits(fits: &Fits) -> String {
    if fits.ran == 0 {
        return String::new();
    }
    let few = fits.rejected.iter().filter(|run| run.few_bits).count();
    format!(
        "{} of {} runs that worked are predicted not to fit, {few} of them in 8 or 4 bits\n",
        fits.rejected.len(),
        fits.ran,
    )
}

/// Table of regret, by file and over all.
fn describe_regret(regret: &[Regret], left_out: &[Regret]) -> String {
    let [all, without] = [regret, left_out].map(|of| of.iter().cloned().reduce(Regret::and));
    let (Some(all), Some(without)) = (all, without) else { return String::new() };
    let headings =
        ["file", "groups", "regret", "left out", "worst", "pairs", "ordered", "worst chosen"];
    let all = Regret { file: "all".to_owned(), ..all };
    let both = regret.iter().chain([&all]).zip(left_out.iter().chain([&without]));
    let rows = both.map(|(it, without)| {
        [
            it.file.clone(),
            it.groups.to_string(),
            percent(it.mean),
            percent(without.mean),
            percent(it.worst),
            it.pairs.to_string(),
            percent(it.share_ordered()),
            if it.worst > 0.0 {
                format!("{} for {}", it.worst_id, it.best_id)
            } else {
                String::new()
            },
        ]
    });
    format!(
        "\nregret: how much longer the layout that a search would choose takes than the fastest measured one, in groups \
         of runs\nthat differ in their layout alone; `left out`: the same with constants fitted without the source; \
         `pairs` differ by over\n3 %, `ordered` is the share of them that is predicted in the right order\n\n{}",
        text_table(headings, &["file", "worst chosen"], rows)
    )
}

const fn quantity_name(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::StepTimeSeconds => "step time",
        Quantity::PeakMemoryBytes => "memory",
        Quantity::LatencySeconds => "latency",
    }
}

/// Steps with the largest errors of step time, with the terms of their predictions.
fn worst(runs: &[(String, Validated)]) -> String {
    let mut off: Vec<_> = runs
        .iter()
        .filter_map(|(file, Validated { run, predicted, .. })| {
            let measured = run.step_time_seconds.as_ref().ok().copied().flatten()?;
            let predicted = predicted.as_ref().ok()?;
            let error = predicted.step_time_seconds / measured - 1.0;
            Some((error, file, &run.id, measured, predicted))
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

/// Rows without a prediction, with the reason. A row that states several quantities appears once for each reason.
fn not_predicted(comparisons: &[Comparison]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for Comparison { file, rows, .. } in comparisons {
        for row in rows {
            if let ComparedRow::Unsupported { id, unsupported } = row {
                let line = format!("  {id} ({file}): {unsupported}\n");
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let more = match lines.len().saturating_sub(NUM_NAMED) {
        0 => String::new(),
        more => format!("  and {more} more, which `--format json` names\n"),
    };
    let named: String = lines.into_iter().take(NUM_NAMED).collect();
    format!("\nnot predicted:\n{named}{more}")
}
