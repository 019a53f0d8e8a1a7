//! `planner list`.

use cost_models::{clusters, frameworks};
use ir::cluster::{Cluster, NetworkLevel, Precision};
use std::fmt::Write as _;

use ir::framework::{Feature, Features, Framework, IDEAL};
use ir::model::{GraphOptions, Model};
use ir::schedule::ScheduleKind;
use models::{ALL, Shipped};
use planner_tools::lint::Rule;
use serde::Serialize;
use serde_json::json;

use super::answer::Answer;
use super::args::{ListArgs, Listed};
use super::tables::{count, text_table};

pub(crate) fn list(args: &ListArgs) -> anyhow::Result<Answer> {
    let print = args.format;
    match args.what {
        Listed::Clusters => {
            let all: Vec<_> = clusters::names().filter_map(clusters::preset).collect();
            print.print(&all, || cluster_table(&all))
        }
        Listed::Frameworks => {
            let all: Vec<_> = frameworks::all().chain(frameworks::preset(IDEAL)).collect();
            print.print(&all, || framework_table(&all))
        }
        Listed::Models => {
            let all = models()?;
            print.print(&all, || model_table(&all))
        }
        Listed::Architectures => {
            let all = ir::model::known_architectures();
            print.print(&all, || {
                let rows = all.iter().map(|it| [it.model_type.to_owned(), it.classes.join(", ")]);
                text_table(["model_type", "classes"], &["model_type", "classes"], rows)
            })
        }
        Listed::Schedules => {
            let all = ScheduleKind::ALL.map(|kind| [kind.name(), kind.description()]);
            let named =
                all.map(|[name, description]| json!({ "name": name, "description": description }));
            let headings = ["schedule", "what it does"];
            print.print(&named, || text_table(headings, &headings, all))
        }
        Listed::Rules => {
            let all = Rule::ALL
                .iter()
                .map(|rule| [rule.id(), rule.most_severe().name(), rule.description()]);
            let named = all.clone().map(|[name, severity, description]| {
                json!({ "name": name, "description": description, "severity": severity })
            });
            let headings = ["rule", "up to", "what it looks for"];
            print.print(&named.collect::<Vec<_>>(), || text_table(headings, &headings, all))
        }
    }
}

/// A model that ships, with its numbers of parameters.
#[derive(Serialize)]
struct ListedModel {
    name: &'static str,
    architecture: String,
    num_parameters: u64,
    num_active_parameters: u64,
    also: &'static [&'static str],
}

fn models() -> anyhow::Result<Vec<ListedModel>> {
    let of = |shipped: &'static Shipped| {
        let model = Model::from_json(shipped.text, shipped.name)?;
        let counts = model.graph(GraphOptions::default())?.parameter_counts();
        Ok(ListedModel {
            name: shipped.name,
            architecture: model.architecture,
            num_parameters: counts.total,
            num_active_parameters: counts.active,
            also: shipped.also,
        })
    };
    ALL.iter().map(of).collect()
}

fn model_table(models: &[ListedModel]) -> String {
    let rows = models.iter().map(|model| {
        let repository = model.also.iter().find(|also| also.contains('/'));
        [
            model.name.to_owned(),
            count(model.num_parameters as f64),
            count(model.num_active_parameters as f64),
            (*repository.unwrap_or(&"-")).to_owned(),
        ]
    });
    let headings = ["model", "parameters", "active", "Hugging Face hub"];
    text_table(headings, &["model", "Hugging Face hub"], rows)
}

fn framework_table(frameworks: &[Framework]) -> String {
    let headings =
        ["framework", "what it is", "pipelines", "ZeRO", "context", "experts", "precisions"];
    let mut not_together = String::new();
    let rows = frameworks.iter().map(|framework| {
        let Framework { name, description, abilities, .. } = framework;
        let none = || "-".to_owned();
        let joined = |names: Vec<&str>| if names.is_empty() { none() } else { names.join(" ") };
        let with_pipelines = |stage| {
            let both = [(Feature::of_zero(stage), true), (Feature::PipelineParallel, true)];
            abilities.combines(Features::which(both))
        };
        let zero = abilities.zero.iter().map(|it| {
            let star = if with_pipelines(it.stage) { "" } else { "*" };
            format!("{}{star}", it.stage.number())
        });
        let zero = zero.collect::<Vec<_>>().join(" ");
        let refused: Vec<String> = abilities.exclusions.iter().map(ToString::to_string).collect();
        if !refused.is_empty() {
            let _ = writeln!(not_together, "  {name}: {}", refused.join("; "));
        }
        [
            name.clone(),
            description.clone(),
            joined(abilities.schedules.iter().map(|it| it.name()).collect()),
            zero,
            joined(abilities.context_parallel.iter().map(|it| it.name()).collect()),
            abilities.experts.as_ref().map_or_else(none, |it| {
                joined(it.dispatchers.iter().map(|it| it.name()).collect())
            }),
            joined(abilities.precisions.iter().map(|it| it.name()).collect()),
        ]
    });
    let rows = text_table(headings, &headings, rows);
    format!("{rows}* without pipelines alone\nnot run together\n{not_together}")
}

fn cluster_table(clusters: &[Cluster]) -> String {
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
    let rows = clusters.iter().map(|cluster| {
        let gpu = &cluster.gpu;
        let peak = [Precision::Bf16, Precision::Fp16, Precision::Fp32]
            .iter()
            .find_map(|precision| gpu.peak.get(precision))
            .map_or(0.0, |rate| rate.get());
        let bandwidth = |level: Option<&NetworkLevel>| {
            level.map_or_else(|| "-".to_owned(), |l| format!("{:.0}", l.bandwidth.get() / 1e9))
        };
        [
            cluster.name.clone(),
            gpu.name.clone(),
            cluster.gpus_per_node.to_string(),
            format!("{:.0}", peak / 1e12),
            format!("{:.1}", gpu.memory.as_gib()),
            format!("{:.2}", gpu.memory_bandwidth.get() / 1e12),
            bandwidth(cluster.levels.first()),
            bandwidth(cluster.levels.last()),
        ]
    });
    text_table(headings, &["cluster", "GPU"], rows)
}
