//! How predicted steps depend on each constant of `cost-models/data/training.json` and
//! `cost-models/frameworks/`.
//!
//! `cargo run --release -p planner --example fit_steps -- DIR > rows.json` writes, for each measured run of
//! `DIR/runs`, measured and predicted time and the derivative of the logarithm of the latter by the
//! logarithm of each constant that it depends on. `cost-models/fit/fit_steps.py` solves for the constants.

use std::collections::BTreeMap;

use cost_models::Hardware;
use planner::validation::setup::Setup;
use planner::validation::{predict, read_rows};
use rayon::prelude::*;
use serde_json::json;

/// A constant, and where it stands.
type Constant = (&'static str, &'static str, fn(&mut Hardware) -> &mut f64);

/// The constants, by whose they are.
const CONSTANTS: [Constant; 14] = [
    ("gpu", "matmul", |it| &mut it.device.training.matmul),
    ("gpu", "matmul_8_bit", |it| &mut it.device.training.matmul_8_bit),
    ("gpu", "matmul_4_bit", |it| &mut it.device.training.matmul_4_bit),
    ("gpu", "attention_forward", |it| &mut it.device.training.attention_forward),
    ("gpu", "attention_backward", |it| &mut it.device.training.attention_backward),
    ("gpu", "memory", |it| &mut it.device.training.memory),
    ("framework", "host.microseconds_per_operator", |it| {
        &mut it.framework.host.microseconds_per_operator
    }),
    ("framework", "host.microseconds_per_operator_with_experts", |it| {
        &mut it.framework.host.microseconds_per_operator_with_experts
    }),
    ("framework", "host.microseconds_per_awaited_operator", |it| {
        &mut it.framework.host.microseconds_per_awaited_operator
    }),
    ("framework", "pipeline_parallel.microseconds_per_awaited_message", |it| {
        &mut it.framework.pipeline_parallel.microseconds_per_awaited_message
    }),
    ("framework", "kernels.elementwise_traffic", |it| {
        &mut it.framework.kernels.elementwise_traffic
    }),
    ("framework", "kernels.score_traffic", |it| &mut it.framework.kernels.score_traffic),
    ("framework", "exchanges.within_blocks", |it| &mut it.framework.exchanges.within_blocks),
    ("framework", "exchanges.over_replicas", |it| &mut it.framework.exchanges.over_replicas),
];

/// Of longer tables, every second or third row and so on.
const MOST_ROWS: usize = 200;

/// By how much a constant is moved.
const STEP: f64 = 0.02;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).expect("a folder with `runs`");
    let factors: BTreeMap<String, f64> = match std::env::args().nth(2) {
        Some(path) => serde_json::from_str(&std::fs::read_to_string(path)?)?,
        None => BTreeMap::new(),
    };
    let mut out = Vec::new();
    let mut files: Vec<_> =
        std::fs::read_dir(format!("{folder}/runs"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        let Ok(rows) = read_rows(&name, &std::fs::read_to_string(file.path())?) else { continue };
        let found: Vec<_> = rows
            .par_iter()
            .step_by(rows.len().div_ceil(MOST_ROWS))
            .filter_map(|row| {
                let measured = row.step_time_seconds().ok()??;
                let mut setup = Setup::of(row).ok()?;
                let gpu = setup.problem.hardware.device.training_set.clone();
                let framework = setup.problem.hardware.framework.measured_name().to_owned();
                let key = |kind, constant| {
                    let owner = if kind == "gpu" { &gpu } else { &framework };
                    format!("{owner} {constant}")
                };
                for (kind, constant, place) in CONSTANTS {
                    *place(&mut setup.problem.hardware) *=
                        factors.get(&key(kind, constant)).unwrap_or(&1.0);
                }
                let base = predict(&setup).step_time_seconds;
                let mut derivatives = BTreeMap::new();
                for (kind, constant, place) in CONSTANTS {
                    let mut moved = setup.clone();
                    let value = place(&mut moved.problem.hardware);
                    *value = if *value == 0.0 { 1e-3 } else { *value * (1.0 + STEP) };
                    let time = predict(&moved).step_time_seconds;
                    let derivative = (time / base).ln() / (1.0 + STEP).ln();
                    derivatives.insert(key(kind, constant), derivative);
                }
                Some(json!({ "file": name, "id": row.id, "measured": measured, "predicted": base,
                    "derivatives": derivatives }))
            })
            .collect();
        out.extend(found);
    }
    std::io::Write::write_all(&mut std::io::stdout(), serde_json::to_string(&out)?.as_bytes())?;
    Ok(())
}
