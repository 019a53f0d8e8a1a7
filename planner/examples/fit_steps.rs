//! How predicted steps depend on each constant of `cost-models/data/training.json` and
//! `cost-models/frameworks/`.
//!
//! `cargo run --release -p planner --example fit_steps -- DIR [CONSTANTS] [--no-derivatives]` writes, for each measured
//! run of `DIR/runs`, measured and predicted time, the constants that the prediction depends on, and the derivative of
//! the logarithm of the time by the logarithm of each. CONSTANTS is a JSON object of values that take the place of those
//! that ship. `cost-models/fit/fit_steps.py` solves for them.

use std::collections::BTreeMap;

use cost_models::{Hardware, frameworks};
use planner::validation::row::Row;
use planner::validation::setup::Setup;
use planner::validation::{predict, read_rows};
use rayon::prelude::*;
use serde_json::json;

/// A constant, and where it stands.
type Constant = (&'static str, fn(&mut Hardware) -> &mut f64);

/// Constants of GPUs.
const OF_GPU: [Constant; 4] = [
    ("matmul", |it| &mut it.device.training.matmul),
    ("matmul_8_bit", |it| &mut it.device.training.matmul_8_bit),
    ("matmul_4_bit", |it| &mut it.device.training.matmul_4_bit),
    ("memory", |it| &mut it.device.training.memory),
];

/// Constants of a library's attention on a GPU.
const OF_ATTENTION: [Constant; 2] = [
    ("forward", |it| &mut it.device.training.attention_forward),
    ("backward", |it| &mut it.device.training.attention_backward),
];

/// Constants of frameworks.
const OF_FRAMEWORK: [Constant; 8] = [
    ("host.microseconds_per_operator", |it| &mut it.framework.host.microseconds_per_operator),
    ("host.microseconds_per_operator_with_experts", |it| {
        &mut it.framework.host.microseconds_per_operator_with_experts
    }),
    ("host.microseconds_per_awaited_operator", |it| {
        &mut it.framework.host.microseconds_per_awaited_operator
    }),
    ("pipeline_parallel.microseconds_per_awaited_message", |it| {
        &mut it.framework.pipeline_parallel.microseconds_per_awaited_message
    }),
    ("kernels.elementwise_traffic", |it| &mut it.framework.kernels.elementwise_traffic),
    ("kernels.score_traffic", |it| &mut it.framework.kernels.score_traffic),
    ("exchanges.within_blocks", |it| &mut it.framework.exchanges.within_blocks),
    ("exchanges.over_replicas", |it| &mut it.framework.exchanges.over_replicas),
];

/// Constants of all.
const OF_ALL: [Constant; 1] = [("growth", |it| &mut it.network.growth)];

/// Of longer tables, every second or third row and so on.
const MOST_ROWS: usize = 200;

/// By how much a constant is moved.
const STEP: f64 = 0.02;

/// The constants that a step depends on, by their owner's name and their own.
fn constants(setup: &Setup) -> Vec<(String, Constant)> {
    let hardware = &setup.problem.hardware;
    let gpu = &hardware.device.training_set;
    let library = serde_json::to_value(hardware.framework.attention_on(hardware.architecture));
    let library = library.ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default();
    let framework = hardware.framework.measured_name();
    let of_gpu = OF_GPU.into_iter().map(|it| (format!("{gpu} {}", it.0), it));
    let of_attention =
        OF_ATTENTION.into_iter().map(|it| (format!("{gpu} {library}.{}", it.0), it));
    let of_framework = OF_FRAMEWORK.into_iter().map(|it| (format!("{framework} {}", it.0), it));
    let of_all = OF_ALL.into_iter().map(|it| (format!("network {}", it.0), it));
    of_gpu.chain(of_attention).chain(of_framework).chain(of_all).collect()
}

fn fitted(file: &str, row: &Row, values: &BTreeMap<String, f64>, derive: bool) -> Option<serde_json::Value> {
    let measured = row.step_time_seconds().ok()??;
    let mut setup = Setup::of(row).ok()?;
    let constants = constants(&setup);
    // What a row says of its run may have multiplied a constant.
    let mut shipped = setup.problem.hardware.clone();
    shipped.framework = frameworks::preset(&shipped.framework.name)?;
    for (name, (_, place)) in &constants {
        let Some(value) = values.get(name) else { continue };
        let from = *place(&mut shipped);
        let place = place(&mut setup.problem.hardware);
        *place = if from == 0.0 { *value } else { *place * value / from };
    }
    let base = predict(&setup).step_time_seconds;
    let mut derivatives = BTreeMap::new();
    let mut at = BTreeMap::new();
    for (name, (_, place)) in constants.iter().filter(|_| derive) {
        let mut moved = setup.clone();
        let value = place(&mut moved.problem.hardware);
        at.insert(name, values.get(name).copied().unwrap_or(*place(&mut shipped)));
        if *value == 0.0 {
            continue;
        }
        *value *= 1.0 + STEP;
        let time = predict(&moved).step_time_seconds;
        let derivative = (time / base).ln() / (1.0 + STEP).ln();
        derivatives.insert(name, derivative);
    }
    Some(json!({ "file": file, "id": row.id, "gpu": row.text("gpu"), "measured": measured, "predicted": base,
        "problem": row.problem(), "layout": row.layout(), "values": at, "derivatives": derivatives }))
}

fn main() -> anyhow::Result<()> {
    let (flags, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
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
    std::io::Write::write_all(&mut std::io::stdout(), serde_json::to_string(&out)?.as_bytes())?;
    Ok(())
}
