//! What each target writes: the one place that knows them all.

use super::argument::Argument;
use super::error::Lack;
use super::file::File;
use super::launch::{self, Launcher, Program, Starter};
use super::table::Table;
use super::target::Target;
use super::view::ExportView;
use super::{accelerate, bridge, deepspeed, executor, megatron, nanotron, torchtitan};

/// The files of a plan, the one to start with first and the plan last.
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

/// The options that a plan decides; the executor reads the plan itself.
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

/// What a target cannot be told of a plan, its model and what its framework cannot run aside.
pub(super) fn lacks(target: Target, view: &ExportView<'_>) -> Vec<Lack> {
    let mut lacks = own_lacks(target, view);
    let ([nodes, each], gpus) = (view.nodes(), view.plan.num_gpus);
    // MPI starts so many ranks in all; the others as many on each node.
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

/// What it cannot be told of a plan's model.
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

/// What it is told of a plan's model by arguments.
pub(super) fn model_arguments(target: Target, view: &ExportView<'_>) -> Vec<Argument> {
    match target {
        Target::Megatron => megatron::model_arguments(view),
        Target::MegatronBridge => bridge::model_arguments(view),
        Target::Nanotron => nanotron::model_arguments(view),
        _ => Vec::new(),
    }
}
