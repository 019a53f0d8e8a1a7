//! Import of other tools' settings.

use std::collections::BTreeMap;

use ir::cluster::Cluster;
use ir::graph::Graph;
use ir::model::transformer::{DropoutRates, FeedForward, Layer};
use ir::model::{Description, GraphOptions, Model};
use ir::plan::{Plan, PlannedModel};
use ir::text::count_of;

use super::adapters;
use super::detect::{is_script, source};
use super::error::{Divided, ImportError};
use super::imported::{Imported, Posed, Stated};
use super::options::{OptionError, UnknownPart};
use super::shell::{self, Script, ShellError, Way};
use super::source::{Source, notation};
use super::target::Target;
use super::tool::Tool;
use super::tools::tool;
use super::tree::{Notation, Tree};
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

/// Imports settings as a plan, with the settings that are not part of it.
///
/// # Errors
///
/// [`ImportError`] where they cannot be read, contradict themselves, or describe another model.
pub fn import(import: &Import<'_>) -> Result<(Plan, Vec<Unread>), ImportError> {
    let Import { model, cluster, stated, .. } = *import;
    let mut imported = settings(import)?;
    let graph = import.graph(&mut imported)?;
    let graph = match imported.layout.recompute.modules() {
        Some(modules) => {
            graph.recomputing(modules).map_err(|error| ImportError::unbuilt(&error))?
        }
        None => graph,
    };
    let posed = imported.posed(&graph, cluster, stated.num_gpus);
    let posed = posed.map_err(|error| imported.of_experts(model, &graph).unwrap_or(error))?;
    let Posed { problem, layout, stage_ends } = posed;
    let (found, _) = simulated(&problem, layout, &stage_ends);
    let plan = import.plan(&imported, &problem, &found);
    let (left_out, differences): (Vec<_>, Vec<_>) =
        imported.differences(&plan, model, &graph).into_iter().partition(|it| it.is_left_out);
    if differences.is_empty() {
        let left_out = left_out.iter().map(|it| {
            let why = format!("another model than `{}` is trained: {it}", model.name);
            Unread::new(&it.stated.name, why)
        });
        let repeated = imported.repeated.iter().map(|it| {
            let (before, last) = (it.before.join(" "), it.last.join(" "));
            let why = format!("given as `{before}`, then as `{last}`: the last counts");
            Unread::new(&it.option, why)
        });
        let is_other = plan.layout.context_parallel_kind != imported.layout.context_parallel_kind;
        let exchange = is_other.then(|| {
            let why = "an exchange of heads over more ranks than key-value heads divide over; a ring is planned";
            Unread::new("context_parallel_kind", why)
        });
        let unread = exchange.into_iter().chain(imported.unread(cluster));
        return Ok((plan, left_out.chain(repeated).chain(unread).collect()));
    }
    let differences = differences.iter().chain(&left_out).map(ToString::to_string).collect();
    Err(ImportError::Model { model: model.name.clone(), differences })
}

impl Import<'_> {
    /// The graph of the model as settings train it, without modules to recompute.
    pub(crate) fn graph(&self, imported: &mut Imported) -> Result<Graph, ImportError> {
        let options = GraphOptions {
            attention: attention_kernel(&imported.framework),
            multi_token_prediction: imported.multi_token_prediction,
            dropout: imported.dropout,
        };
        adapters::trained_graph(imported, self.model, options)
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

/// Reads settings of a tool, without a check against model and cluster.
///
/// If branches of a script depend on unknown values, every way is followed. A branch is an error only if its ways lead
/// to different settings.
///
/// # Errors
///
/// [`ImportError`] where they cannot be read, or contradict themselves.
pub fn settings(import: &Import<'_>) -> Result<Imported, ImportError> {
    settings_by_branch(import).map_err(|error| with_others(import, error))
}

/// Largest number of variables that are asked for at once.
const MOST_ASKED: usize = 12;

/// The error of an unknown variable, extended by the variables that would be asked for next. These are found by giving
/// each a number until another kind of error occurs.
fn with_others(import: &Import<'_>, error: ImportError) -> ImportError {
    let asked = |error: &ImportError| match error {
        ImportError::Option(OptionError::Unresolved {
            of: UnknownPart::Value(_), unknown, ..
        }) => {
            let [name] = unknown.as_slice() else { return None };
            let is_name = !name.starts_with(|first: char| !first.is_alphabetic() && first != '_');
            is_name.then(|| name.clone())
        }
        _ => None,
    };
    let mut set = import.set.clone();
    let mut next = asked(&error);
    while let Some(name) = next.take_if(|_| set.len() < import.set.len() + MOST_ASKED) {
        let is_new = set.insert(name, "1".to_owned()).is_none();
        let others = settings_by_branch(&Import { set: &set, ..import.clone() });
        next = others.err().filter(|_| is_new).and_then(|error| asked(&error));
    }
    match error {
        ImportError::Option(OptionError::Unresolved { of, unknown, .. }) => {
            let is_other =
                |name: &&String| !import.set.contains_key(*name) && !unknown.contains(*name);
            let others = set.keys().filter(is_other).cloned().collect();
            OptionError::Unresolved { of, unknown, others }.into()
        }
        error => error,
    }
}

/// Settings on all ways through the branches.
fn settings_by_branch(import: &Import<'_>) -> Result<Imported, ImportError> {
    let error = match settings_of(import, &Way::None) {
        Ok(imported) => return Ok(imported),
        Err(error) => error,
    };
    if !is_script(import.text) {
        return Err(error);
    }
    let script = shell::read(import.text, import.set, import.files, &Way::first());
    let Ok(script) = script else { return Err(error) };
    if script.open.is_empty() {
        return Err(error);
    }
    let mut meant: Option<Result<Imported, ImportError>> = None;
    let mut of_other = None;
    for (line, way) in std::iter::once((0, Way::first())).chain(Way::others(&script)) {
        let found = settings_of(import, &way);
        let is_same = match (&meant, &found) {
            // A way that starts no training is not the intended one.
            (_, Err(ImportError::NothingStarts { .. })) | (None, _) => true,
            (Some(Ok(one)), Ok(other)) => is_same_plan(one, other),
            (Some(Err(one)), Err(other)) => one.to_string() == other.to_string(),
            _ => false,
        };
        if !is_same {
            return Err(decided(&script, line, error));
        }
        match found {
            Err(it) if it.is_of_other() => of_other = Some(it),
            Err(ImportError::NothingStarts { .. }) => {}
            found if meant.is_none() => meant = Some(found),
            _ => {}
        }
    }
    // If every way starts nothing, or a program of a tool that is not read, that error is more useful than one about a
    // branch.
    let error = of_other.filter(|_| meant.is_none()).unwrap_or(error);
    // An error about a value that depends on a branch takes precedence over a fault that all ways share.
    let is_of_value = matches!(
        &error,
        ImportError::Option(OptionError::Unresolved { of: UnknownPart::Value(_), .. })
    );
    meant.filter(|it| it.is_ok() || !is_of_value).unwrap_or(Err(error))
}

/// Returns whether settings lead to the same plan; settings that are not part of it may differ.
fn is_same_plan(one: &Imported, other: &Imported) -> bool {
    let planned =
        |it: &Imported| Imported { unread: Vec::new(), repeated: Vec::new(), ..it.clone() };
    planned(one) == planned(other)
}

/// Error for a branch whose ways lead to different plans. It is about the option that depends on the branch, if that is
/// known.
fn decided(script: &Script, line: usize, strict: ImportError) -> ImportError {
    let open = script.open.get(&line).filter(|_| {
        !matches!(
            strict,
            ImportError::Option(OptionError::Unresolved { .. })
                | ImportError::Shell(ShellError::Branch { .. })
        )
    });
    let Some(open) = open else { return strict };
    let variables = open.variables.iter().cloned().collect();
    ShellError::Decides { line, keyword: open.keyword.clone(), variables }.into()
}

/// Reads settings, following one way through the branches that depend on unknown values.
fn settings_of(import: &Import<'_>, way: &Way) -> Result<Imported, ImportError> {
    let Import { text, from, set, files, stated, .. } = *import;
    let mut source: Source<'_> = source(text, from, set, files, stated, way)?;
    if let Description::Transformer(transformer) = &import.model.description {
        let is_mixture = |it: &Layer| matches!(it.feed_forward, FeedForward::Mixture(_));
        source.num_layers = Some(transformer.layers.iter().map(|it| it.count).sum());
        source.has_experts = transformer.layers.iter().any(|it| is_mixture(&it.layer));
        source.is_all_mixture = transformer.layers.iter().all(|it| is_mixture(&it.layer));
        source.has_no_dropout = transformer.dropout == DropoutRates::default();
    }
    let read = tool(source.target).read.ok_or_else(|| {
        let works = "`plan.json`, which every command reads";
        ImportError::unknown("the executor's settings are the plan itself", works)
    })?;
    let mut imported = read(&source)?;
    let of_launcher = source.launched().ok().and_then(|it| it.ranks_per_node);
    imported.ranks_per_node = of_launcher.or(imported.ranks_per_node);
    adapters::name_unknown(&mut imported);
    if !is_script(text) && notation("", text) == Notation::Yaml {
        imported.repeated.extend(Tree::repeated(text));
    }
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

/// Tool of settings, with the files that they name; `None` if the tool is unknown.
pub(crate) fn tool_of(import: &Import<'_>) -> Option<&'static Tool> {
    let Import { text, from, set, files, stated, .. } = *import;
    let of_way = |way: &Way| source(text, from, set, files, stated, way).ok();
    of_way(&Way::None).or_else(|| of_way(&Way::first())).map(|it| tool(it.target))
}
