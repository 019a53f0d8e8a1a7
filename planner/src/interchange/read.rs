//! Settings of other tools, found in what a user has.

use std::collections::BTreeMap;

use ir::cluster::Cluster;
use ir::graph::Graph;
use ir::model::{GraphOptions, Model};
use ir::plan::{Plan, PlannedModel, Provenance};

use super::imported::{Given, ImportError, Imported};
use super::megatron;
use super::shell::{self, Script, Word};
use crate::plan::sha256;

/// What is beside the settings.
#[derive(Clone, Debug)]
pub struct Import<'a> {
    /// What the settings are: a script, or a list of arguments.
    pub text: &'a str,
    /// Values of variables that a script does not set.
    pub set: &'a BTreeMap<String, String>,
    /// The model.
    pub model: &'a Model,
    /// Its file.
    pub model_text: &'a str,
    /// The GPUs.
    pub cluster: &'a Cluster,
    /// How many, where the settings do not say.
    pub num_gpus: Option<u32>,
    /// The command that makes the plan again.
    pub command: String,
}

/// The plan that settings are.
///
/// # Errors
///
/// [`ImportError`] where they cannot be read, contradict themselves, or are of another model.
pub fn import(import: &Import<'_>) -> Result<Plan, ImportError> {
    let Import { model, model_text, cluster, num_gpus, .. } = *import;
    let imported = settings(import)?;
    let (multi_token_prediction, dropout) = (imported.multi_token_prediction, imported.dropout);
    let options = GraphOptions { multi_token_prediction, dropout, ..GraphOptions::default() };
    let unbuilt = |what: String| ImportError::Unknown {
        what,
        works: "a model that has what the settings are of".to_owned(),
    };
    let graph = model.graph(options).map_err(|error| unbuilt(error.to_string()))?;
    let graph = match imported.layout.recompute.modules() {
        Some(modules) => graph.recomputing(modules).map_err(|error| unbuilt(error.to_string()))?,
        None => graph,
    };
    let given = Given {
        model,
        graph: &graph,
        planned: planned(model, model_text, &graph, [multi_token_prediction, dropout]),
        cluster,
        num_gpus,
        provenance: Provenance {
            planner_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: import.command.clone(),
            model_sha256: sha256(model_text),
            cluster_sha256: sha256(&serde_json::to_string(cluster).unwrap_or_default()),
        },
    };
    imported.plan(&given)
}

fn planned(
    model: &Model,
    text: &str,
    graph: &Graph,
    [modules, dropout]: [bool; 2],
) -> PlannedModel {
    PlannedModel {
        name: model.name.clone(),
        description: serde_json::from_str(text).unwrap_or_default(),
        num_parameters: graph.parameter_counts().total,
        multi_token_prediction: modules,
        dropout,
        adapters: None,
    }
}

/// The settings, as the tool that they are of has them.
///
/// # Errors
///
/// [`ImportError`] where they cannot be read, or contradict themselves.
pub fn settings(import: &Import<'_>) -> Result<Imported, ImportError> {
    let Import { text, set, num_gpus, .. } = *import;
    let script = shell::read(text, set)?;
    let (before, words) = program(&script)?;
    let num_gpus = ranks(&script, &before).or(num_gpus);
    megatron::read(&words, num_gpus)
}

/// The words before and after the program that trains.
fn program(script: &Script) -> Result<(Vec<Word>, Vec<Word>), ImportError> {
    let is_program = |word: &Word| {
        let name = word.text.rsplit('/').next().unwrap_or_default();
        let stem = name.strip_suffix(".py");
        stem.is_some_and(|stem| stem.starts_with("pretrain_"))
    };
    let found = script.commands.iter().find_map(|words| {
        let place = words.iter().position(is_program)?;
        Some((words[..place].to_vec(), words[place + 1..].to_vec()))
    });
    if let Some(found) = found {
        return Ok(found);
    }
    // A list of arguments alone, on one line or several.
    let words = script.commands.concat();
    if words.first().is_some_and(|it| it.text.starts_with("--")) {
        return Ok((Vec::new(), words));
    }
    Err(ImportError::Unknown {
        what: "nothing starts a program that is known".to_owned(),
        works: "a script that runs Megatron-LM's `pretrain_gpt.py`, or its arguments alone"
            .to_owned(),
    })
}

/// How many ranks a script starts, as far as it says.
fn ranks(script: &Script, before: &[Word]) -> Option<u32> {
    let option = |names: [&str; 2]| {
        let place = before.iter().position(|word| {
            let name = word.text.split('=').next().unwrap_or_default();
            names.contains(&name)
        })?;
        let word = &before[place];
        let value = match word.text.split_once('=') {
            Some((_, value)) => value,
            None => before.get(place + 1)?.text.as_str(),
        };
        value.parse::<u32>().ok()
    };
    let nodes = option(["--nnodes", "--nnodes"]);
    let each = option(["--nproc-per-node", "--nproc_per_node"]);
    if let (Some(nodes), Some(each)) = (nodes, each) {
        return nodes.checked_mul(each);
    }
    let directive = |names: &[&str]| {
        let value = names.iter().find_map(|name| script.directives.get(*name))?;
        value.trim_start_matches("gpu:").rsplit(':').next()?.parse::<u32>().ok()
    };
    let nodes = directive(&["--nodes", "-N"])?;
    nodes.checked_mul(directive(&["--gpus-per-node", "--gres", "--ntasks-per-node"])?)
}
