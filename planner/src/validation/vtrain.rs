//! The tables of the vTrain project: Megatron-DeepSpeed on A100.

use serde_json::{Map, Value, json};

use super::error::FileError;
use super::row::Row;

/// The tables' columns by what they are called here.
const COLUMNS: [(&str, &str); 11] = [
    ("# GPUs", "n_gpus"),
    ("global batch", "global_batch_size"),
    ("micro batch", "micro_batch_size"),
    ("hidden size", "hidden"),
    ("attention heads", "n_heads"),
    ("# layers", "n_layers"),
    ("sequence length", "seq_len"),
    ("tensor parallelism", "tp"),
    ("data parallelism", "dp"),
    ("pipeline parallelism", "pp"),
    ("iteration time (ms)", "step_time_ms"),
];

/// The rows of a table, named by their line, the header being the first.
pub(super) fn read(text: &str) -> Result<Vec<Row>, FileError> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let places: Option<Vec<usize>> = COLUMNS
        .iter()
        .map(|(column, _)| columns.iter().position(|other| other == column))
        .collect();
    let places =
        places.ok_or_else(|| FileError::OtherColumns(header.chars().take(80).collect()))?;
    let rows = lines.zip(2..).filter(|(line, _)| !line.trim().is_empty());
    Ok(rows.map(|(line, number)| row(line, number, &places)).collect())
}

/// What all runs of the tables share.
///
/// # Source
///
/// vTrain's repository: `config/validation` (every layer recomputed, 1F1B, nodes of 8 with 800 Gb/s between
/// them), `src/config.py` (vocabulary), `src/model/fused_softmax.py` (attention that stores its scores).
/// That tables are tied and updates not sharded is assumed, as in Megatron's defaults of that time.
fn row(line: &str, number: usize, places: &[usize]) -> Row {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let shared = json!({
        "id": number.to_string(), "source_title": "vTrain", "gpu": "A100-SXM4-80GB", "gpus_per_node": 8,
        "gated_mlp": false, "tied_embeddings": true, "precision": "fp16", "recompute": "full",
        "schedule": "1F1B", "attention_impl": "unfused (core attention materialised)",
        "inter_node_bw_Gbps_per_gpu": 100, "zero_stage": 0, "vocab": 50_257,
    });
    let mut fields: Map<String, Value> = shared.as_object().cloned().unwrap_or_default();
    for ((_, name), place) in COLUMNS.iter().zip(places) {
        let cell = cells.get(*place).copied().unwrap_or_default();
        let (name, scale) = match *name {
            "step_time_ms" => ("step_time_s", 1e-3),
            name => (name, 1.0),
        };
        // What is no number is told where it is asked for.
        let value = cell.parse::<f64>().map_or_else(|_| cell.into(), |it| (it * scale).into());
        fields.insert(name.to_owned(), value);
    }
    Row::new(number, Value::Object(fields))
}
