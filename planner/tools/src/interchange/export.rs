//! A plan, written for a tool.

use ir::graph::{AdapterError, Graph};
use ir::model::{GraphOptions, Model};
use ir::plan::{Plan, PlannedModel};
use ir::text::printable_json;

use super::approximate;
use super::error::{ExportError, Lack};
use super::file::File;
use super::launch::Launcher;
use super::target::Target;
use super::view::ExportView;
use super::{lacks, write};
use planner_core::plan::CheckedPlan;
use planner_core::problem::Problem;

/// A plan in the words of a tool.
#[derive(Clone, Debug)]
pub struct Export {
    /// For which tool.
    pub target: Target,
    /// The files, the one to start with first.
    pub files: Vec<File>,
    /// The plan that they are of, which is another than the one that was given where that was approximated.
    pub plan: Plan,
    /// What was changed, and what that costs; what else there is to know.
    pub notes: Vec<String>,
}

/// How a plan is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// For which tool.
    pub target: Target,
    /// What starts the ranks.
    pub launcher: Launcher,
    /// Whether the nearest plan may be written where the tool cannot run this one.
    pub approximate: bool,
}

/// Writes a plan for a tool.
///
/// # Errors
///
/// [`ExportError`] where the tool cannot run it, with what would work.
pub fn export(checked: &CheckedPlan, wanted: Wanted) -> Result<Export, ExportError> {
    let Wanted { target, launcher, approximate } = wanted;
    let model = &checked.model;
    let all = |plan: &Plan, problem: &Problem| lacks_of(target, plan, model, problem);
    let lacks = all(&checked.plan, &checked.problem);
    let of_model = lacks_of_model(target, &checked.plan, model, &checked.problem.graph);
    let (free, dear): (Vec<Lack>, Vec<Lack>) = of_model.into_iter().partition(|lack| lack.is_free);
    if !dear.is_empty() {
        return Err(ExportError::Model { target, lacks: dear });
    }
    let is_whole = lacks.is_empty() && free.is_empty();
    if !approximate && !is_whole {
        let lacks = [lacks, free].concat();
        return Err(ExportError::Lacks { target, lacks });
    }
    let mut notes: Vec<String> = free
        .iter()
        .map(|lack| {
            format!("approximation: without {}, which changes no predicted time", lack.what)
        })
        .collect();
    let (plan, graph) = if lacks.is_empty() {
        (checked.plan.clone(), checked.problem.graph.clone())
    } else {
        let plain =
            plain_graph(&checked.plan, model).expect("the graph of a checked plan is built");
        let near = approximate::near(checked, &plain, target, &lacks, &all)?;
        notes.extend(near.changes);
        (near.plan, near.problem.graph)
    };
    let view = ExportView::new(&plan, model, &graph, notes.clone());
    let files = write::files(target, launcher, &view, &plan_file(&plan));
    Ok(Export { target, files, plan, notes })
}

/// The plan that the other files are of.
fn plan_file(plan: &Plan) -> File {
    let text = serde_json::to_string_pretty(plan).expect("a plan is JSON") + "\n";
    // A manifest has it in it, as text that must be fit for YAML.
    let text = printable_json(&text).into_owned();
    File { name: "plan.json".to_owned(), text, is_executable: false }
}

/// The graph of a plan's model, with nothing named that is computed again.
fn plain_graph(plan: &Plan, model: &Model) -> Result<Graph, AdapterError> {
    let PlannedModel { multi_token_prediction, dropout, .. } = plan.model;
    let options = GraphOptions { multi_token_prediction, dropout, ..GraphOptions::default() };
    model.training_graph(options, plan.model.adapters.as_ref())
}

/// What a tool cannot run of a plan, its model aside.
fn lacks_of(target: Target, plan: &Plan, model: &Model, problem: &Problem) -> Vec<Lack> {
    let facts = problem.facts;
    let view = ExportView::new(plan, model, &problem.graph, Vec::new());
    let mut lacks = lacks::of_framework(target, &plan.layout, &plan.training, facts);
    lacks.extend(write::lacks(target, &view));
    lacks
}

fn lacks_of_model(target: Target, plan: &Plan, model: &Model, graph: &Graph) -> Vec<Lack> {
    write::lacks_of_model(target, &ExportView::new(plan, model, graph, Vec::new()))
}

/// What of a plan's model none of the tools of a framework can be given, as the first of them says it; nothing where
/// one can, or where plans are written for none.
pub fn lacked_by_tools(framework: &str, plan: &Plan, model: &Model, graph: &Graph) -> Vec<String> {
    let tools = Target::ALL.into_iter().filter(|target| target.framework().name == framework);
    let lacks = tools.map(|target| {
        let lacks = lacks_of_model(target, plan, model, graph).into_iter();
        lacks.filter(|lack| !lack.is_free).map(|lack| lack.what).collect::<Vec<_>>()
    });
    let lacks: Vec<_> = lacks.collect();
    if lacks.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    lacks.into_iter().next().unwrap_or_default()
}
