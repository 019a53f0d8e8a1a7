//! Files and unsupported parts of a plan for a tool.

use super::error::Lack;
use super::file::File;
use super::launch::{self, Launcher};
use super::target::Target;
use super::tools::tool;
use super::view::ExportView;

/// Files of an export: the file to start with first, the plan last.
pub(super) fn files(
    target: Target,
    launcher: Launcher,
    view: &ExportView<'_>,
    plan: &File,
) -> Vec<File> {
    let program = (tool(target).program)(view, plan);
    let (name, text) = launch::file(launcher, view, target.tool(), &program);
    let first = File { name, text, is_executable: launcher != Launcher::Kubernetes };
    let beside = program.beside.into_iter().filter(|it| it.name != plan.name);
    std::iter::once(first).chain(beside).chain([plan.clone()]).collect()
}

/// Parts of a plan that a target cannot run; the model, and the abilities of its framework, are checked elsewhere.
pub(super) fn lacks(target: Target, view: &ExportView<'_>) -> Vec<Lack> {
    let mut lacks = (tool(target).lacks)(view);
    let ([nodes, each], gpus) = (view.nodes(), view.plan.num_gpus);
    // MPI starts a total number of ranks; the other launchers start equal numbers on each node.
    if target != Target::EXECUTOR && nodes * each != gpus {
        let what = format!("{gpus} ranks on nodes of {each}: as many are started on each node");
        lacks.push(Lack::new(what, format!("`--gpus {}`", nodes * each)));
    }
    lacks
}
