//! Import of other tools' settings.

use std::collections::BTreeMap;

use ir::cluster::Cluster;
use ir::graph::Graph;
use ir::model::transformer::{FeedForward, Layer};
use ir::model::{Description, GraphOptions, Model};
use ir::plan::{Plan, PlannedModel};
use ir::text::count_of;

use super::detect::source;
use super::error::{Divided, ImportError};
use super::imported::{Imported, Posed, Stated};
use super::source::Source;
use super::target::Target;
use super::tool::Tool;
use super::tools::tool;
use super::unread::Unread;
use planner_core::plan;
use planner_core::problem::{Problem, attention_kernel};
use planner_core::search::{EvaluatedPlan, simulated};

/// Settings to import, with their context.
#[derive(Clone, Debug)]
pub struct Import<'a> {
    /// Text of the settings: a script, a list of arguments, or a tool's file.
    pub text: &'a str,
    /// Tool of the settings, if the user names it.
    pub from: Option<Target>,
    /// Files that the settings name ([`LaunchScript::named_files`](super::LaunchScript::named_files)), by their names.
    pub files: &'a BTreeMap<String, String>,
    /// Values that the user states in addition to the settings.
    pub stated: Stated,
    /// Values of variables that the script does not set.
    pub set: &'a BTreeMap<String, String>,
    /// The model.
    pub model: &'a Model,
    /// Text of the model's file.
    pub model_text: &'a str,
    /// Cluster that the plan is for.
    pub cluster: &'a Cluster,
    /// Command that reproduces the plan.
    pub command: String,
}

/// Imports settings as a plan, with the settings that are no part of it.
///
/// # Errors
///
/// [`ImportError`] where they cannot be read, contradict themselves, or describe another model.
pub fn import(import: &Import<'_>) -> Result<(Plan, Vec<Unread>), ImportError> {
    let Import { model, cluster, stated, .. } = *import;
    let imported = settings(import)?;
    let graph = import.graph(&imported)?;
    let graph = match imported.layout.recompute.modules() {
        Some(modules) => graph.recomputing(modules).map_err(|error| unbuilt(&error))?,
        None => graph,
    };
    let Posed { problem, layout, stage_ends } = imported.posed(&graph, cluster, stated.num_gpus)?;
    let (found, _) = simulated(&problem, layout, &stage_ends);
    let plan = import.plan(&imported, &problem, &found);
    let differences = imported.differences(&plan, model, &graph);
    if differences.is_empty() {
        return Ok((plan, imported.unread(cluster)));
    }
    let differences = differences.iter().map(ToString::to_string).collect();
    Err(ImportError::Model { model: model.name.clone(), differences })
}

impl Import<'_> {
    /// The graph of the model as settings train it, without modules to recompute.
    pub(crate) fn graph(&self, imported: &Imported) -> Result<Graph, ImportError> {
        let options = GraphOptions {
            attention: attention_kernel(&imported.framework),
            multi_token_prediction: imported.multi_token_prediction,
            dropout: imported.dropout,
        };
        let graph = self.model.training_graph(options, imported.adapters.as_ref());
        graph.map_err(|error| unbuilt(&error))
    }

    /// The plan of settings that pose this problem.
    pub(crate) fn plan(
        &self,
        imported: &Imported,
        problem: &Problem,
        found: &EvaluatedPlan,
    ) -> Plan {
        let Self { model, model_text, cluster, .. } = *self;
        let planned = PlannedModel {
            name: model.name.clone(),
            description: serde_json::from_str(model_text).unwrap_or_default(),
            num_parameters: problem.graph.parameter_counts().total,
            multi_token_prediction: imported.multi_token_prediction,
            dropout: imported.dropout,
            adapters: imported.adapters.clone(),
        };
        let provenance = plan::provenance(self.command.clone(), model_text, cluster);
        plan::make(problem, cluster, planned, found, &[], provenance)
    }
}

/// Error of a model that lacks what the settings train.
fn unbuilt(error: &impl ToString) -> ImportError {
    ImportError::unknown(error.to_string(), "a model that has what the settings are of")
}

/// Reads settings of a tool, without a check against model and cluster.
///
/// # Errors
///
/// [`ImportError`] where they cannot be read, or contradict themselves.
pub fn settings(import: &Import<'_>) -> Result<Imported, ImportError> {
    let Import { text, from, set, files, stated, .. } = *import;
    let mut source: Source<'_> = source(text, from, set, files, stated)?;
    if let Description::Transformer(transformer) = &import.model.description {
        let is_mixture = |it: &Layer| matches!(it.feed_forward, FeedForward::Mixture(_));
        source.num_layers = Some(transformer.layers.iter().map(|it| it.count).sum());
        source.has_experts = transformer.layers.iter().any(|it| is_mixture(&it.layer));
        source.is_all_mixture = transformer.layers.iter().all(|it| is_mixture(&it.layer));
    }
    let read = tool(source.target).read.ok_or_else(|| {
        let works = "`plan.json`, which every command reads";
        ImportError::unknown("the executor's settings are the plan itself", works)
    })?;
    let mut imported = read(&source)?;
    let of_launcher = source.started().ok().and_then(|it| it.ranks_per_node);
    imported.ranks_per_node = of_launcher.or(imported.ranks_per_node);
    let ranks = imported.layout.pipeline_parallel;
    match stated.pipeline_parallel.filter(|stated| *stated != ranks) {
        Some(stated) => Err(ImportError::divides(
            Divided::Stated,
            format!(
                "the settings have {}, not {stated}",
                count_of(ranks, "pipeline rank", "pipeline ranks")
            ),
            "leave out `--pp`",
        )),
        None => Ok(imported),
    }
}

/// Tool of settings with the files that they name; `None` if they are of none that is known.
pub(crate) fn tool_of(import: &Import<'_>) -> Option<&'static Tool> {
    let Import { text, from, set, files, stated, .. } = *import;
    source(text, from, set, files, stated).ok().map(|it| tool(it.target))
}
