//! What each target writes: the one place that knows them all.

use super::argument::Argument;
use super::error::Lack;
use super::file::File;
use super::launch::{self, Launcher, Program, Starter};
use super::setting::Setting;
use super::table::Table;
use super::target::Target;
use super::{accelerate, bridge, deepspeed, executor, megatron, nanotron, torchtitan};

/// The files of a plan, the one to start with first and the plan last.
pub(super) fn files(
    target: Target,
    launcher: Launcher,
    setting: &Setting<'_>,
    plan: &File,
) -> Vec<File> {
    let (program, beside) = match target {
        Target::Megatron => {
            let program = Program {
                name: "megatron",
                command: vec!["pretrain_gpt.py".to_owned()],
                environment: megatron::environment(setting),
                sections: megatron::sections(setting),
                own: megatron::own(),
                last: Vec::new(),
                starter: Starter::Torchrun,
                beside: Vec::new(),
            };
            (program, Vec::new())
        }
        Target::MegatronBridge => bridge::program(setting),
        Target::TorchTitan => torchtitan::program(setting),
        Target::DeepSpeed => deepspeed::program(setting),
        Target::Accelerate => accelerate::program(setting, false),
        Target::Trainer => accelerate::program(setting, true),
        Target::Nanotron => nanotron::program(setting),
        Target::Executor => (executor::program(setting, plan), Vec::new()),
    };
    let (name, text) = launch::file(launcher, setting, target.tool(), &program);
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
pub(super) fn lacks(target: Target, setting: &Setting<'_>) -> Vec<Lack> {
    let mut lacks = own_lacks(target, setting);
    let ([nodes, each], gpus) = (setting.nodes(), setting.plan.num_gpus);
    // MPI starts so many ranks in all; the others as many on each node.
    if target != Target::Executor && nodes * each != gpus {
        let what = format!("{gpus} ranks on nodes of {each}: as many are started on each node");
        lacks.push(Lack::new(what, format!("`--gpus {}`", nodes * each)));
    }
    lacks
}

fn own_lacks(target: Target, setting: &Setting<'_>) -> Vec<Lack> {
    match target {
        Target::Megatron => megatron::lacks(setting),
        Target::MegatronBridge => bridge::lacks(setting),
        Target::TorchTitan => torchtitan::lacks(setting),
        Target::Nanotron => nanotron::lacks(setting),
        Target::DeepSpeed => deepspeed::lacks(setting),
        Target::Accelerate => accelerate::lacks(setting, false),
        Target::Trainer => accelerate::lacks(setting, true),
        Target::Executor => Vec::new(),
    }
}

/// What it cannot be told of a plan's model.
pub(super) fn lacks_of_model(target: Target, setting: &Setting<'_>) -> Vec<Lack> {
    match target {
        Target::Megatron => megatron::lacks_of_model(setting),
        Target::MegatronBridge => bridge::lacks_of_model(setting),
        Target::TorchTitan => torchtitan::lacks_of_model(setting),
        Target::Nanotron => nanotron::lacks_of_model(setting),
        Target::Accelerate | Target::Trainer => accelerate::lacks_of_model(setting),
        Target::DeepSpeed => deepspeed::lacks_of_model(setting),
        Target::Executor => Vec::new(),
    }
}

/// What it is told of a plan's model by arguments.
pub(super) fn model_arguments(target: Target, setting: &Setting<'_>) -> Vec<Argument> {
    match target {
        Target::Megatron => megatron::model_arguments(setting),
        Target::MegatronBridge => bridge::model_arguments(setting),
        Target::Nanotron => nanotron::model_arguments(setting),
        _ => Vec::new(),
    }
}
