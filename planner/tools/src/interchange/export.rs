//! Export of a plan for a tool.

use ir::framework::Framework;
use ir::graph::{AdapterError, Graph};
use ir::model::{GraphOptions, Model};
use ir::plan::{Plan, PlannedModel};

use super::approximate;
use super::error::{ExportError, Lack};
use super::file::File;
use super::lacks;
use super::launch::{self, Launcher};
use super::target::Target;
use super::tools::tool;
use super::view::ExportView;
use planner_core::plan::CheckedPlan;
use planner_core::problem::{Problem, attention_kernel};

/// Files of a plan for a tool.
#[derive(Clone, Debug)]
pub struct Export {
    /// The tool.
    pub target: Target,
    /// Files; the one to start with is first.
    pub files: Vec<File>,
    /// The plan in the files: the original, or the nearest that the tool runs.
    pub plan: Plan,
    /// Changes to the plan with their cost, and other remarks.
    pub notes: Vec<String>,
}

/// Options of an export.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The tool.
    pub target: Target,
    /// Launcher of the ranks.
    pub launcher: Launcher,
    /// True if the nearest plan may be written where the tool cannot run the original.
    pub approximate: bool,
}

/// Exports a plan for a tool.
///
/// # Errors
///
/// [`ExportError`] where the tool cannot run it, with hints.
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
        let nearest = approximate::nearest_plan(checked, &plain, target, &lacks, &all)?;
        notes.extend(nearest.changes);
        (nearest.plan, nearest.problem.graph)
    };
    let view = ExportView::new(&plan, model, &graph, notes.clone());
    let files = files(target, launcher, &view, &File::json("plan.json", &plan));
    Ok(Export { target, files, plan, notes })
}

/// Files of an export: the file to start with first, the plan last.
fn files(target: Target, launcher: Launcher, view: &ExportView<'_>, plan: &File) -> Vec<File> {
    let program = (tool(target).program)(view, plan);
    let (name, text) = launch::file(launcher, view, target.tool(), &program);
    let first = File { name, text, is_executable: launcher != Launcher::Kubernetes };
    let hosts = launch::hostfile(launcher, view, &program);
    let extra_files = program.extra_files.into_iter().filter(|it| it.name != plan.name);
    std::iter::once(first).chain(hosts).chain(extra_files).chain([plan.clone()]).collect()
}

/// The graph of a plan's model, without modules to recompute.
fn plain_graph(plan: &Plan, model: &Model) -> Result<Graph, AdapterError> {
    let PlannedModel { multi_token_prediction, dropout, .. } = plan.model;
    let attention = attention_kernel(&plan.framework);
    let options = GraphOptions { attention, multi_token_prediction, dropout };
    model.training_graph(options, plan.model.adapters.as_ref())
}

/// Parts of a plan that a tool cannot run, apart from its model.
fn lacks_of(target: Target, plan: &Plan, model: &Model, problem: &Problem) -> Vec<Lack> {
    let facts = problem.facts;
    let view = ExportView::new(plan, model, &problem.graph, Vec::new());
    let mut lacks = lacks::of_framework(target, &plan.layout, &plan.training, facts);
    lacks.extend((tool(target).lacks)(&view));
    let ([nodes, each], gpus) = (view.nodes(), plan.num_gpus);
    let has_chunks = plan.framework.kernels.loss.gradient.has_chunks();
    if has_chunks && !tool(target).states_loss {
        let what = "a loss that is computed with the head, which its files cannot state";
        lacks.push(Lack::new(what, "`--loss plain`"));
    }
    lacks.extend(lack_of_groups(plan, &target.framework()));
    // MPI starts a total number of ranks; the other launchers start equal numbers on each node.
    if target != Target::EXECUTOR && nodes * each != gpus {
        let what = format!("{gpus} ranks on nodes of {each}: as many are started on each node");
        let works = if plan.cluster.groups.is_empty() {
            format!("`--gpus {}`", nodes * each)
        } else {
            "groups of nodes with as many GPUs each".to_owned()
        };
        lacks.push(Lack::new(what, works));
    }
    lacks
}

/// The ability that the framework lacks for a plan on GPUs of several kinds.
fn lack_of_groups(plan: &Plan, framework: &Framework) -> Option<Lack> {
    let Framework { name, abilities, .. } = framework;
    let by_group = plan.layout.micro_batches_by_group;
    if !plan.ranks.is_empty() && by_group.is_empty() && !abilities.unlike_gpus {
        let works = "`--framework executor-cuda`, or replicas that lie in groups: `--pp 1`";
        return Some(Lack::new("a pipeline on GPUs of several kinds", works));
    }
    if !by_group.is_empty() && plan.layout.pipeline_parallel > 1 {
        let what = "replicas of several pipeline ranks in groups of GPUs, as ranks are started stage by stage";
        return Some(Lack::new(what, "replicas of one pipeline rank: `--pp 1`"));
    }
    let is_uneven = !by_group.are_equal() && !abilities.uneven_replicas;
    is_uneven.then(|| {
        let what = format!("replicas with {by_group} micro-batches by their group");
        let works =
            format!("a plan made with `--framework {name}`, whose replicas have equal shares");
        Lack::new(what, works)
    })
}

fn lacks_of_model(target: Target, plan: &Plan, model: &Model, graph: &Graph) -> Vec<Lack> {
    (tool(target).lacks_of_model)(&ExportView::new(plan, model, graph, Vec::new()))
}

/// Parts of a plan's model that no tool of a framework supports, as the first of these tools reports them. Empty if one
/// tool supports the model, or if the framework has no tool.
pub fn lacked_by_tools(framework: &str, plan: &Plan, model: &Model, graph: &Graph) -> Vec<String> {
    let tools = Target::all().filter(|target| target.framework().name == framework);
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
