//! `planner lint`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use clap::{Args as _, Command};
use ir::text::printable_lines;
use ir::units::Seconds;
use planner::file_kind::FileKind;
use planner::names;
use planner_tools::interchange::LaunchScript;
use planner_tools::lint::{self, Finding, LintReport, Nearby, SettingsPrediction, Severity};

use super::answer::Answer;
use super::args::{FailOn, LintArgs, LintFormat, ToolSettingsArgs};
use super::files::{ending, parse_plan, read_text_of};
use super::given::options;
use super::import::{Settings, check_kind};
use super::picture::refuse_other_endings;
use super::questions::with_schedule;
use super::tables::{percent, text_table};
use command_line::destination::{refuse_to_overwrite, write_output};
use command_line::terminal::{print, print_json_text};
use command_line::usage::has;

pub(crate) fn lint(args: &LintArgs) -> anyhow::Result<Answer> {
    if let Some(output) = &args.output {
        refuse_other_endings(output, "a report", &["txt", "md", "json"], None)?;
    }
    let text = read_text_of(&args.file, &[FileKind::Settings, FileKind::Plan])?;
    let report = if is_plan(&text) {
        refuse_settings()?;
        let plan = parse_plan(&args.file, &text)?;
        lint::lint_plan(&plan, &text, args.nearest)
    } else {
        of_settings(args, text)?
    };
    let file = args.file.to_string_lossy();
    let format = args.format.unwrap_or_else(|| usual_format(args.output.as_deref()));
    let result = match format {
        LintFormat::Text => printable_lines(&describe(&report, &file)).into_owned(),
        LintFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    match &args.output {
        Some(output) => {
            let cluster = args.cluster.as_deref().map(Path::new);
            let inputs = [Some(args.file.as_path()), args.model.as_deref(), cluster];
            for input in inputs.into_iter().flatten() {
                refuse_to_overwrite(input, output)?;
            }
            write_output(output, result.as_bytes())?;
        }
        None if format == LintFormat::Text => print(&result)?,
        None => print_json_text(&result)?,
    }
    let least = match args.fail_on {
        FailOn::Error => Some(Severity::Error),
        FailOn::Warning => Some(Severity::Warning),
        FailOn::Note => Some(Severity::Note),
        FailOn::Never => None,
    };
    let fails = least.is_some_and(|least| report.count(least) > 0);
    Ok(if fails { Answer::Faults } else { Answer::Found })
}

/// Output format from the ending of the output file; text by default.
fn usual_format(output: Option<&Path>) -> LintFormat {
    let is_json = output.and_then(ending).as_deref() == Some("json");
    if is_json { LintFormat::Json } else { LintFormat::Text }
}

/// Refuses options for settings if a plan is linted, since a plan has its own values of all of them.
fn refuse_settings() -> anyhow::Result<()> {
    let of_settings = ToolSettingsArgs::augment_args(Command::new("settings"));
    let is_refused =
        |it: &String| ["--model", "--cluster"].contains(&it.as_str()) || has(&of_settings, it);
    let refused = options().into_iter().find(is_refused);
    ensure!(
        refused.is_none(),
        "a plan has its own `{}`\nhint: leave it out; `planner evaluate` makes a plan with another",
        refused.unwrap_or_default()
    );
    Ok(())
}

/// Returns whether a text is a plan of this program rather than settings of another tool.
fn is_plan(text: &str) -> bool {
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    value.is_some_and(|it| it.get("layout").is_some() && it.get("prediction").is_some())
}

/// Report on settings and on the files that they name.
fn of_settings(args: &LintArgs, text: String) -> anyhow::Result<LintReport> {
    check_kind(&args.file, &text)?;
    let model: &Path = args.model.as_deref().with_context(|| {
        let none = BTreeMap::new();
        let script = LaunchScript::read(&text, &none, &none).unwrap_or_default();
        let shipped = script.model_names().iter().find_map(|it| names::model(it));
        let name = shipped.map_or("llama-3.1-8b", |it| it.name);
        format!("settings do not say all of the model that they train\nhint: `--model {name}`")
    })?;
    let cluster = args.cluster.as_deref().unwrap_or("h100");
    let output = args.output.as_deref();
    let settings = Settings::read(&args.file, text, model, cluster, &args.settings, output)?;
    let report = lint::lint(&settings.import(&args.settings), args.nearest);
    let mut report = report.with_context(|| format!("`{}`", args.file.display()))?;
    if !settings.is_in_place {
        report.forget_places();
    }
    Ok(report)
}

fn describe(report: &LintReport, file: &str) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        describe_finding(&mut text, finding, file);
    }
    if !report.findings.is_empty() {
        text.push('\n');
    }
    match &report.prediction {
        Some(prediction) => describe_prediction(&mut text, report, prediction),
        None => text.push_str("all else is judged once these errors are fixed\n"),
    }
    describe_nearest(&mut text, &report.nearest);
    let counts = [Severity::Error, Severity::Warning, Severity::Note].map(|severity| {
        let count = report.findings.iter().filter(|it| it.severity == severity).count();
        format!("{count} {}{}", severity.name(), if count == 1 { "" } else { "s" })
    });
    let _ = writeln!(text, "{}", counts.join(", "));
    text
}

fn describe_finding(text: &mut String, finding: &Finding, file: &str) {
    let first = finding.options.iter().find_map(|it| Some((it.file.as_deref(), it.line?)));
    let sibling = |name: &str| Path::new(file).with_file_name(name).display().to_string();
    let place = first.map_or_else(
        || file.to_owned(),
        |(named, line)| format!("{}:{line}", named.map_or_else(|| file.to_owned(), sibling)),
    );
    let options: Vec<String> =
        finding.options.iter().map(|it| format!("`{}`", it.option)).collect();
    let about =
        if options.is_empty() { String::new() } else { format!(" ({})", options.join(", ")) };
    let _ = writeln!(
        text,
        "{place}: {}[{}]: {}{about}",
        finding.severity.name(),
        finding.rule.id(),
        finding.message
    );
    if let Some(fix) = &finding.fix {
        let _ = writeln!(text, "  fix: {}", fix.text);
    }
}

fn describe_prediction(text: &mut String, report: &LintReport, prediction: &SettingsPrediction) {
    let SettingsPrediction { layout, training, num_gpus, .. } = prediction;
    let [low, high] = prediction.interval_seconds.map(Seconds::new);
    let fixed = if prediction.with_errors_fixed { ", with the fixes of all errors" } else { "" };
    let _ = write!(
        text,
        "{} on {num_gpus} x {} with {}: {}, {} micro-batches, recompute {}{fixed}\n\
         sequence {}, batch {}, {}\n\
         predicted: {} a step ({low} to {high}), {:.0} tokens/s on each GPU, MFU {}, {:.1} GiB of {:.1}\n",
        report.model,
        report.cluster,
        report.tool,
        with_schedule(layout),
        layout.micro_batches(),
        layout.recompute,
        training.sequence_length,
        training.global_batch_size,
        training.precision,
        Seconds::new(prediction.step_time_seconds),
        prediction.tokens_per_second_per_gpu,
        percent(prediction.mfu),
        prediction.peak_memory_bytes.as_gib(),
        prediction.memory_bytes.as_gib(),
    );
    if prediction.ranks.len() > 1 {
        let rows = prediction.ranks.iter().map(|rank| {
            let on = rank.group.as_ref().map_or_else(String::new, |group| format!(" on {group}"));
            [
                format!("{}{on}", rank.pipeline_rank),
                rank.num_blocks.to_string(),
                Seconds::new(rank.busy_seconds).to_string(),
                Seconds::new(rank.bubble_seconds).to_string(),
                format!("{:.1}", rank.peak_memory_bytes.as_gib()),
            ]
        });
        text.push_str(&text_table(["rank", "blocks", "at work", "waits", "GiB"], &[], rows));
    }
    text.push('\n');
}

fn describe_nearest(text: &mut String, nearest: &[Nearby]) {
    if nearest.is_empty() {
        return;
    }
    text.push_str("better settings near these, by prediction:\n");
    for Nearby { fix, saves, .. } in nearest {
        let interval = saves.interval.map_or(String::new(), |[low, high]| {
            format!(" ({:.0} to {:.0} %)", low * 100.0, high * 100.0)
        });
        let memory = fix.peak_memory_bytes.unwrap_or_default() as f64 / (1u64 << 30) as f64;
        let _ = writeln!(
            text,
            "  saves {:.0} % of a step{interval}, {memory:.1} GiB: {}",
            saves.share_of_time * 100.0,
            fix.text
        );
    }
    text.push('\n');
}
