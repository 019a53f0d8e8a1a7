//! `planner list`.

use cost_models::{clusters, frameworks};
use ir::cluster::Precision;
use std::fmt::Write as _;

use ir::framework::{Feature, Features, Framework, IDEAL};
use ir::model::{GraphOptions, Model};
use ir::schedule::ScheduleKind;
use models::{ALL, Shipped};
use planner_tools::lint::Rule;
use serde::Serialize;
use serde_json::json;

use super::answer::Answer;
use super::args::{Format, ListArgs, Listed};
use super::tables::{count, render, table};
use command_line::said::{print, print_json};

pub(crate) fn list(args: &ListArgs) -> anyhow::Result<Answer> {
    match (args.what, args.format) {
        (Listed::Clusters, Format::Json) => {
            print_json(&clusters::names().filter_map(clusters::preset).collect::<Vec<_>>())?;
        }
        (Listed::Clusters, Format::Table) => print(&cluster_table())?,
        (Listed::Frameworks, Format::Json) => {
            print_json(&frameworks::all().chain(frameworks::preset(IDEAL)).collect::<Vec<_>>())?;
        }
        (Listed::Frameworks, Format::Table) => print(&framework_table())?,
        (Listed::Models, Format::Json) => print_json(&models()?)?,
        (Listed::Models, Format::Table) => print(&model_table()?)?,
        (Listed::Architectures, Format::Json) => print_json(&ir::model::known_architectures())?,
        (Listed::Architectures, Format::Table) => {
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
        (Listed::Rules, Format::Json) => {
            let rules = Rule::ALL.iter().map(|rule| {
                let severity = rule.most_severe().name();
                json!({ "name": rule.id(), "description": rule.description(), "severity": severity })
            });
            print_json(&rules.collect::<Vec<_>>())?;
        }
        (Listed::Rules, Format::Table) => {
            let headings = ["rule", "up to", "what it looks for"];
            let mut rows = table(&headings, &headings);
            for rule in Rule::ALL {
                rows.add_row([rule.id(), rule.most_severe().name(), rule.description()]);
            }
            print(&render(&rows))?;
        }
    }
    Ok(Answer::Found)
}

/// A model that ships, with what it amounts to.
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

fn model_table() -> anyhow::Result<String> {
    let headings = ["model", "parameters", "active", "Hugging Face hub"];
    let mut rows = table(&headings, &["model", "Hugging Face hub"]);
    for model in models()? {
        let repository = model.also.iter().find(|also| also.contains('/'));
        rows.add_row([
            model.name.to_owned(),
            count(model.num_parameters as f64),
            count(model.num_active_parameters as f64),
            repository.map_or_else(|| "-".to_owned(), |it| (*it).to_owned()),
        ]);
    }
    Ok(render(&rows))
}

fn framework_table() -> String {
    let headings =
        ["framework", "what it is", "pipelines", "ZeRO", "context", "experts", "precisions"];
    let mut rows = table(&headings, &headings);
    let mut not_together = String::new();
    for framework in frameworks::all().chain(frameworks::preset(IDEAL)) {
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
        rows.add_row([
            name,
            description,
            joined(abilities.schedules.iter().map(|it| it.name()).collect()),
            zero,
            joined(abilities.context_parallel.iter().map(|it| it.name()).collect()),
            abilities.experts.map_or_else(none, |it| {
                joined(it.dispatchers.iter().map(|it| it.name()).collect())
            }),
            joined(abilities.precisions.iter().map(|it| it.name()).collect()),
        ]);
    }
    format!("{}* without pipelines alone\nnot run together\n{not_together}", render(&rows))
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
