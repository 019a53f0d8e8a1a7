//! Dispatch to the code of each target.

use super::argument::Argument;
use super::error::Lack;
use super::file::File;
use super::launch::{self, Launcher, Program, Starter};
use super::table::Table;
use super::target::Target;
use super::view::ExportView;
use super::{accelerate, bridge, deepspeed, executor, megatron, nanotron, torchtitan};

/// Files of an export: the file to start with first, the plan last.
pub(super) fn files(
    target: Target,
    launcher: Launcher,
    view: &ExportView<'_>,
    plan: &File,
) -> Vec<File> {
    let (program, beside) = match target {
        Target::Megatron => {
            let program = Program {
                name: "megatron",
                command: vec!["pretrain_gpt.py".to_owned()],
                environment: megatron::environment(view),
                sections: megatron::sections(view),
                own: megatron::own(),
                last: Vec::new(),
                starter: Starter::Torchrun,
                beside: Vec::new(),
            };
            (program, Vec::new())
        }
        Target::MegatronBridge => bridge::program(view),
        Target::TorchTitan => torchtitan::program(view),
        Target::DeepSpeed => deepspeed::program(view),
        Target::Accelerate => accelerate::program(view, false),
        Target::Trainer => accelerate::program(view, true),
        Target::Nanotron => nanotron::program(view),
        Target::Executor => (executor::program(view, plan), Vec::new()),
    };
    let (name, text) = launch::file(launcher, view, target.tool(), &program);
    let first = File { name, text, is_executable: launcher != Launcher::Kubernetes };
    std::iter::once(first).chain(beside).chain([plan.clone()]).collect()
}

/// Table of the options that a plan decides; none for the executor, which reads the plan.
pub(crate) const fn table(target: Target) -> Option<&'static Table> {
    Some(match target {
        Target::Megatron | Target::MegatronBridge => &megatron::TABLE,
        Target::TorchTitan => &torchtitan::TABLE,
        Target::DeepSpeed => &deepspeed::TABLE,
        Target::Accelerate => &accelerate::CONFIGURATION,
        Target::Trainer => &accelerate::TRAINER,
        Target::Nanotron => &nanotron::TABLE,
        Target::Executor => return None,
    })
}

/// Parts of a plan that a target cannot run; the model, and the abilities of its framework, are checked elsewhere.
pub(super) fn lacks(target: Target, view: &ExportView<'_>) -> Vec<Lack> {
    let mut lacks = own_lacks(target, view);
    let ([nodes, each], gpus) = (view.nodes(), view.plan.num_gpus);
    // MPI starts a total number of ranks; the other launchers start equal numbers on each node.
    if target != Target::Executor && nodes * each != gpus {
        let what = format!("{gpus} ranks on nodes of {each}: as many are started on each node");
        lacks.push(Lack::new(what, format!("`--gpus {}`", nodes * each)));
    }
    lacks
}

fn own_lacks(target: Target, view: &ExportView<'_>) -> Vec<Lack> {
    match target {
        Target::Megatron => megatron::lacks(view),
        Target::MegatronBridge => bridge::lacks(view),
        Target::TorchTitan => torchtitan::lacks(view),
        Target::Nanotron => nanotron::lacks(view),
        Target::DeepSpeed => deepspeed::lacks(view),
        Target::Accelerate => accelerate::lacks(view, false),
        Target::Trainer => accelerate::lacks(view, true),
        Target::Executor => Vec::new(),
    }
}

/// Parts of a plan's model that a target cannot express.
pub(super) fn lacks_of_model(target: Target, view: &ExportView<'_>) -> Vec<Lack> {
    match target {
        Target::Megatron => megatron::lacks_of_model(view),
        Target::MegatronBridge => bridge::lacks_of_model(view),
        Target::TorchTitan => torchtitan::lacks_of_model(view),
        Target::Nanotron => nanotron::lacks_of_model(view),
        Target::Accelerate | Target::Trainer => accelerate::lacks_of_model(view),
        Target::DeepSpeed => deepspeed::lacks_of_model(view),
        Target::Executor => Vec::new(),
    }
}

/// Arguments with which a target describes a plan's model.
pub(super) fn model_arguments(target: Target, view: &ExportView<'_>) -> Vec<Argument> {
    match target {
        Target::Megatron => megatron::model_arguments(view),
        Target::MegatronBridge => bridge::model_arguments(view),
        Target::Nanotron => nanotron::model_arguments(view),
        _ => Vec::new(),
    }
}
