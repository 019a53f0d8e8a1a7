//! Calibration of a framework from the times of whole steps.

use std::path::Path;

use anyhow::{Context as _, bail};
use cost_models::frameworks;
use planner_evidence::calibration::{Calibrated, Measured, calibrate as solve, framework};
use planner_evidence::validation::setup::Setup;
use planner_evidence::validation::{memory_of, read_rows};
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::args::CalibrateArgs;
use crate::cli::constants::{self, basis, moved_constants, written};
use crate::cli::files::{file_name, read_framework};
use crate::cli::tables::{percent_more, text_table};
use command_line::destination::{name_for, stdout_is_free, write_json};
use command_line::terminal::tell;

/// Largest ratio between the measured-over-predicted times of two steps after calibration that causes no warning.
const DISAGREEMENT: f64 = 1.25;

/// JSON output of a calibration from steps.
#[derive(Serialize)]
struct CalibrationReport<'a> {
    #[serde(flatten)]
    found: &'a Calibrated,
    /// Rows that were left out, with the reason.
    left_out: &'a [String],
}

/// Calibrates on the measured steps in `text`, the JSON list of the file `from`.
pub(super) fn calibrate(args: &CalibrateArgs, from: &Path, text: &str) -> anyhow::Result<Answer> {
    let name = file_name(from);
    let of_file = || format!("`{}`", from.display());
    let is_empty = text.split_whitespace().collect::<String>() == "[]";
    let rows = if is_empty { Vec::new() } else { read_rows(&name, text).with_context(of_file)? };
    let named = args.framework.as_deref().map(read_framework).transpose()?;
    let (mut steps, mut left_out) = (Vec::new(), Vec::new());
    for row in &rows {
        let setup = Setup::with(row, named.as_ref());
        let step = setup.and_then(|setup| {
            let (step_time_seconds, memory) =
                (row.step_time_seconds.clone()?, memory_of(row, Some(&setup))?);
            Ok(Measured { id: row.id.clone(), setup, step_time_seconds, memory })
        });
        match step {
            Ok(step) if row.ran_out_of_memory => {
                left_out.push(format!("{}: it ran out of memory", step.id));
            }
            Ok(step) if step.step_time_seconds.is_none() && step.memory.is_none() => {
                left_out
                    .push(format!("{}: it states neither a time nor a peak of memory", step.id));
            }
            Ok(step) => steps.push(step),
            Err(reason) => left_out.push(format!("{}: {reason}", row.id)),
        }
    }
    let found = match solve(&steps) {
        Ok(found) => found,
        Err(error) if left_out.is_empty() => return Err(error).with_context(of_file),
        Err(error) => bail!("{}: {error}\nleft out:\n  {}", of_file(), left_out.join("\n  ")),
    };
    warn_of_units(&found);
    if let (Some(path), Some(first)) = (&args.output, steps.first()) {
        // A preset lacks the settings of individual rows.
        let ran = &first.setup.problem.hardware.framework;
        let likeliest = found.like.first().and_then(|(name, _)| frameworks::preset(name));
        let base = likeliest.or_else(|| named.clone()).or_else(|| frameworks::preset(&ran.name));
        let base = base.as_ref().unwrap_or(ran);
        write_json(path, &framework(&name_for(path), base, found.calibration.clone()))?;
    }
    if !stdout_is_free(args.output.iter().chain(&args.chart)) {
        return Ok(Answer::Found);
    }
    let report = CalibrationReport { found: &found, left_out: &left_out };
    args.format.print(&report, || describe(&found, &left_out, args.output.as_deref()))
}

/// Factor between measured and predicted time above which the measurement is likely in another unit.
const OTHER_UNIT: f64 = 20.0;

/// Warns on stderr about steps whose time is likely not in seconds.
fn warn_of_units(found: &Calibrated) {
    for step in &found.steps {
        let (measured, predicted) = (step.measured_seconds, step.predicted_before_seconds);
        let ratio = measured / predicted;
        if (1.0 / OTHER_UNIT..OTHER_UNIT).contains(&ratio) {
            continue;
        }
        let milliseconds = if ratio > 1.0 {
            format!(": if it is in milliseconds, `step_time_s` is {}", measured * 1e-3)
        } else {
            String::new()
        };
        tell(&format!(
            "warning: {}: {measured} s were measured, but {predicted:.4} s are predicted, so what is calibrated is of little \
             use\nhint: `step_time_s` is in seconds, and is of one whole step{milliseconds}",
            step.id
        ));
    }
}

fn describe(found: &Calibrated, left_out: &[String], output: Option<&Path>) -> String {
    let Calibrated { like, calibration, steps } = found;
    let checked = steps.iter().map(|step| {
        let measured = step.measured_seconds;
        [
            step.id.clone(),
            format!("{measured:.4}"),
            percent_more(step.predicted_before_seconds, measured),
            percent_more(step.predicted_seconds, measured),
        ]
    });
    let checked = text_table(["step", "measured s", "before", "calibrated"], &["step"], checked);
    let disagreement = match found.disagreement() {
        Some((slow, fast, ratio)) if ratio > DISAGREEMENT => format!(
            "\nwarning: the steps disagree: with all constants moved, {slow} still takes {ratio:.2} times as long over its \
             prediction as {fast}; check what differs between them, or calibrate on one of them\n"
        ),
        _ => String::new(),
    };
    let written = written(output, "--framework");
    let like = if like.is_empty() {
        String::new()
    } else {
        let shares =
            like.iter().take(3).map(|(name, share)| format!("{name} {:.0} %", share * 100.0));
        format!(
            "what ran them is not known; by these steps, the stack is most like {}\n",
            shares.collect::<Vec<_>>().join(", then ")
        )
    };
    let few = if calibration.steps < 3 { "; three steps say more" } else { "" };
    format!(
        "{}{few}\n{like}\n{checked}\n{}{disagreement}{}\n{written}",
        basis(calibration),
        moved_constants(calibration),
        constants::left_out(left_out),
    )
}
