//! The tables of the vTrain project: runs of Megatron-DeepSpeed on A100.

use serde_json::{Map, Value, json};

use super::error::FileError;
use super::published;
use super::run::MeasuredRun;

/// Columns of the tables, with the corresponding names in published rows.
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

/// Number of GPUs in a node.
const NODE: u64 = 8;

/// Vocabulary size of GPT-2's tokenizer.
const VOCABULARY: u64 = 50_257;

/// The rows of a table. Each is named by its line number, where the header is line 1.
pub(super) fn read(text: &str) -> Result<Vec<MeasuredRun>, FileError> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let places: Option<Vec<usize>> = COLUMNS
        .iter()
        .map(|(column, _)| columns.iter().position(|other| other == column))
        .collect();
    let places = places.ok_or_else(|| other_columns(header, &columns))?;
    let rows = lines.zip(2..).filter(|(line, _)| !line.trim().is_empty());
    Ok(rows.map(|(line, number)| row(line, number, &places, columns.len())).collect())
}

/// The error of a table that lacks columns of vTrain's tables.
fn other_columns(header: &str, columns: &[&str]) -> FileError {
    let missing = COLUMNS.iter().filter(|(column, _)| !columns.contains(column));
    let missing: Vec<String> = missing.map(|(column, _)| format!("`{column}`")).collect();
    let known = if missing.len() == COLUMNS.len() {
        format!("vTrain's tables begin with `{}`", COLUMNS.map(|(column, _)| column).join(","))
    } else {
        format!("of vTrain's columns it lacks {}", missing.join(", "))
    };
    FileError::other_columns(header, known)
}

/// A run of the tables, with the settings that all runs share.
///
/// # Source
///
/// vTrain's repository: `config/validation` (1F1B, nodes of 8 GPUs with 800 Gb/s between nodes), `src/config.py` and
/// `src/model/gpt_modeling.py` (a vocabulary of which each rank has `50257 // tp`), `src/model/fused_softmax.py`
/// (attention that stores its scores). Tied embeddings and unsharded updates are assumed, as in Megatron's defaults of
/// that time.
///
/// vTrain's configurations say that all layers are recomputed. Within one node, no layers are recomputed; this is
/// inferred. By slopes over the number of layers, a layer of 2,048 features takes 17.0 ms for 8,192 tokens, whereas the
/// products of four passes would take 11.5 ms at the data sheet's peak. Each further sequence takes as long as three
/// passes of all kernels are predicted to take, in any layout.
fn row(line: &str, number: usize, places: &[usize], num_columns: usize) -> MeasuredRun {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let shared = json!({
        "id": number.to_string(), "source_title": "vTrain", "gpu": "A100-SXM4-80GB", "gpus_per_node": NODE,
        "gated_mlp": false, "tied_embeddings": true, "precision": "fp16",
        "schedule": "1F1B", "attention_impl": "unfused (core attention materialised)",
        "inter_node_bw_Gbps_per_gpu": 100, "zero_stage": 0,
    });
    let mut fields: Map<String, Value> = shared.as_object().cloned().unwrap_or_default();
    for ((_, name), place) in COLUMNS.iter().zip(places) {
        let cell = cells.get(*place).copied().unwrap_or_default();
        let (name, scale) = match *name {
            "step_time_ms" => ("step_time_s", 1e-3),
            name => (name, 1.0),
        };
        // A cell that is not a number is reported when it is read.
        let value = cell.parse::<f64>().map_or_else(|_| cell.into(), |it| (it * scale).into());
        fields.insert(name.to_owned(), value);
    }
    // A comma within a number would shift the following cells.
    if cells.len() != num_columns {
        let message = format!("{} cells in {num_columns} columns: `{line}`", cells.len());
        fields.insert("step_time_s".to_owned(), message.into());
    }
    let degree = |name: &str| fields.get(name).and_then(Value::as_f64).map_or(1, |it| it as u64);
    let [tensor, gpus] = [degree("tp").max(1), degree("n_gpus")];
    fields.insert("recompute".to_owned(), if gpus <= NODE { "none" } else { "full" }.into());
    fields.insert("vocab".to_owned(), (VOCABULARY / tensor * tensor).into());
    published::run(number, Value::Object(fields))
}
