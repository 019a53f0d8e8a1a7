//! `planner list`.

use cost_models::clusters;
use ir::cluster::Precision;
use ir::schedule::ScheduleKind;
use serde_json::json;

use super::args::{Format, ListArgs, Listed};
use super::output::{Answer, print, print_json};
use super::tables::{render, table};

pub(crate) fn list(args: &ListArgs) -> anyhow::Result<Answer> {
    match (args.what, args.format) {
        (Listed::Clusters, Format::Json) => {
            print_json(&clusters::names().filter_map(clusters::preset).collect::<Vec<_>>())?;
        }
        (Listed::Clusters, Format::Table) => print(&cluster_table())?,
        (Listed::Models, Format::Json) => print_json(&ir::model::known_architectures())?,
        (Listed::Models, Format::Table) => {
            let mut rows = table(&["model_type", "classes"], &["model_type", "classes"]);
            for known in ir::model::known_architectures() {
                rows.add_row([known.model_type.to_owned(), known.classes.join(", ")]);
            }
            print(&render(&rows))?;
        }
        (Listed::Schedules, Format::Json) => {
            let schedules = ScheduleKind::ALL
                .map(|kind| json!({ "name": kind.name(), "description": kind.description() }));
            print_json(&schedules)?;
        }
        (Listed::Schedules, Format::Table) => {
            let mut rows = table(&["schedule", "what it does"], &["schedule", "what it does"]);
            for kind in ScheduleKind::ALL {
                rows.add_row([kind.name(), kind.description()]);
            }
            print(&render(&rows))?;
        }
    }
    Ok(Answer::Found)
}

fn cluster_table() -> String {
    let headings = [
        "cluster",
        "GPU",
        "GPUs/node",
        "bf16 TFLOP/s",
        "memory GiB",
        "TB/s",
        "within",
        "between GB/s",
    ];
    let mut rows = table(&headings, &["cluster", "GPU"]);
    for cluster in clusters::names().filter_map(clusters::preset) {
        let gpu = &cluster.gpu;
        let peak = [Precision::Bf16, Precision::Fp16, Precision::Fp32]
            .iter()
            .find_map(|precision| gpu.peak.get(precision))
            .map_or(0.0, |rate| rate.get());
        let bandwidth = |level: Option<&ir::cluster::NetworkLevel>| {
            level.map_or_else(|| "-".to_owned(), |l| format!("{:.0}", l.bandwidth.get() / 1e9))
        };
        rows.add_row([
            cluster.name.clone(),
            gpu.name.clone(),
            cluster.gpus_per_node.to_string(),
            format!("{:.0}", peak / 1e12),
            format!("{:.1}", gpu.memory.as_gib()),
            format!("{:.2}", gpu.memory_bandwidth.get() / 1e12),
            bandwidth(cluster.levels.first()),
            bandwidth(cluster.levels.last()),
        ]);
    }
    render(&rows)
}
