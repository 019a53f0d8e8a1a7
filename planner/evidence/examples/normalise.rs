//! Measured runs of published tables, each as a plan with its numbers.
//!
//! `cargo run -p planner-evidence --example normalise -- FROM TO` reads the tables of the folder FROM, whose rows have
//! columns as sources publish them, and writes a file of the same name to TO, a line for each run. Texts become the
//! run's `note`; what they state is in its plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use planner_evidence::validation::read_rows;
use serde_json::{Map, Value};

/// Numbers of texts in their order, as labels that sort as the texts do.
fn labels<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut all: Vec<&str> = texts.collect();
    all.sort_unstable();
    all.dedup();
    let width = all.len().to_string().len();
    all.iter()
        .zip(1..)
        .map(|(text, place)| ((*text).to_owned(), format!("{place:0width$}")))
        .collect()
}

/// Columns of numbers that the plan and what was measured have.
const NUMBERS: &str = "gpus_per_node n_gpus intra_node_bw_GBps_per_dir inter_node_bw_Gbps_per_gpu n_layers hidden n_heads \
    n_kv_heads head_dim ffn_hidden gated_mlp vocab seq_len tied_embeddings moe_experts moe_topk moe_ffn_hidden \
    moe_shared_ffn moe_dense_layers tp pp vpp dp cp ep etp sequence_parallel zero_stage distributed_optimizer \
    micro_batch_size global_batch_size n_microbatches tokens_per_s_per_gpu samples_per_s n_params step_time_s lora_rank \
    lora_alpha document_lengths expert_load peak_mem_gib peak_mem_gb";

/// The other columns of a row: the source, its words, and numbers that nothing reads.
fn note(row: &Value) -> Map<String, Value> {
    let fields = row.as_object().into_iter().flatten();
    let is_noted = |name: &str| name != "id" && NUMBERS.split_whitespace().all(|it| it != name);
    let noted = fields.filter(|(name, _)| is_noted(name));
    noted.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn main() -> anyhow::Result<()> {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = folders.as_slice() else { anyhow::bail!("FROM and TO, two folders") };
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path)?;
        let Ok(mut runs) = read_rows(&name, &text) else { continue };
        let Ok(rows) = serde_json::from_str::<Vec<Value>>(&text) else { continue };
        let problems = labels(runs.iter().map(|run| run.problem.as_str()));
        let variants = labels(runs.iter().map(|run| run.variant.as_str()));
        let mut lines = Vec::new();
        for (run, row) in runs.iter_mut().zip(&rows) {
            run.problem.clone_from(&problems[&run.problem]);
            run.variant.clone_from(&variants[&run.variant]);
            run.note = note(row).into();
            lines.push(serde_json::to_string(&run)?);
        }
        fs::write(Path::new(to).join(&name), format!("[\n{}\n]\n", lines.join(",\n")))?;
    }
    Ok(())
}
