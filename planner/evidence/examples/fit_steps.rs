//! Dependence of predicted steps on each constant of `cost-models/frameworks/fitted.json`.
//!
//! `cargo run --release -p planner-evidence --example fit_steps -- DIR [CONSTANTS] [--no-derivatives]` writes, for each
//! measured run of `DIR/runs`, measured and predicted time, the constants that the prediction depends on, and the
//! derivative of the logarithm of the time by the logarithm of each. CONSTANTS is a JSON object of values that take the
//! place of those that ship. `cost-models/fit/fit_steps.py` solves for them. `-- --constants` writes their ranges and
//! spreads.

use std::collections::BTreeMap;

use cost_models::constants::{self, CONSTANTS};
use planner_evidence::validation::run::MeasuredRun;
use planner_evidence::validation::setup::Setup;
use planner_evidence::validation::{predict, read_rows};
use rayon::prelude::*;
use serde_json::json;

/// Of longer tables, every second or third row and so on.
const MOST_ROWS: usize = 200;

/// By how much a constant is moved.
const STEP: f64 = 0.02;

fn fitted(
    file: &str,
    row: &MeasuredRun,
    values: &BTreeMap<String, f64>,
    derive: bool,
) -> Option<serde_json::Value> {
    let measured = row.step_time_seconds.clone().ok()??;
    let mut setup = Setup::of(row).ok()?;
    constants::apply(&mut setup.problem.hardware, values);
    let base = predict(&setup).step_time_seconds;
    let mut derivatives = BTreeMap::new();
    let mut at = BTreeMap::new();
    for constant in CONSTANTS.into_iter().filter(|_| derive) {
        let mut moved = setup.clone();
        let hardware = &mut moved.problem.hardware;
        let (key, value) = (constant.key(hardware), constant.of(hardware));
        if value == 0.0 {
            continue;
        }
        constant.scale(hardware, 1.0 + STEP);
        let time = predict(&moved).step_time_seconds;
        let derivative = (time / base).ln() / (1.0 + STEP).ln();
        derivatives.insert(key.clone(), derivative);
        at.insert(key, value);
    }
    Some(json!({ "file": file, "id": row.id, "measured": measured, "predicted": base,
        "problem": row.problem, "layout": row.variant, "values": at, "derivatives": derivatives }))
}

fn main() -> anyhow::Result<()> {
    let (flags, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if flags.iter().any(|flag| flag == "--constants") {
        let known = CONSTANTS
            .map(|it| (it.name.to_owned(), json!({ "range": it.range, "spread": it.spread })));
        return write(&known.into_iter().collect::<serde_json::Map<_, _>>().into());
    }
    let [folder, values @ ..] = paths.as_slice() else { anyhow::bail!("a folder with `runs`") };
    let values: BTreeMap<String, f64> = match values.first() {
        Some(path) => serde_json::from_str(&std::fs::read_to_string(path)?)?,
        None => BTreeMap::new(),
    };
    let derive = !flags.iter().any(|flag| flag == "--no-derivatives");
    let mut out = Vec::new();
    let mut files: Vec<_> =
        std::fs::read_dir(format!("{folder}/runs"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        let Ok(rows) = read_rows(&name, &std::fs::read_to_string(file.path())?) else { continue };
        let every = if derive { rows.len().div_ceil(MOST_ROWS).max(1) } else { 1 };
        let found: Vec<_> = rows
            .par_iter()
            .step_by(every)
            .filter_map(|row| fitted(&name, row, &values, derive))
            .collect();
        out.extend(found);
    }
    write(&out.into())
}

fn write(value: &serde_json::Value) -> anyhow::Result<()> {
    Ok(serde_json::to_writer(std::io::stdout().lock(), value)?)
}
