//! What each target writes: the one place that knows them all.

use super::argument::Argument;
use super::error::Lack;
use super::file::File;
use super::launch::{self, Launcher, Program};
use super::megatron;
use super::setting::Setting;
use super::target::Target;

/// The files of a plan, the one to start with first.
pub(super) fn files(target: Target, launcher: Launcher, setting: &Setting<'_>) -> Vec<File> {
    match target {
        Target::Megatron => {
            let program = Program {
                name: "megatron",
                command: vec!["pretrain_gpt.py".to_owned()],
                environment: megatron::environment(setting),
                sections: megatron::sections(setting),
                own: megatron::own(),
            };
            vec![started(launcher, setting, target, &program)]
        }
    }
}

/// What a target cannot be told of a plan, its model and what its framework cannot run aside.
pub(super) fn lacks(target: Target, setting: &Setting<'_>) -> Vec<Lack> {
    match target {
        Target::Megatron => megatron::lacks(setting),
    }
}

/// What it cannot be told of a plan's model.
pub(super) fn lacks_of_model(target: Target, setting: &Setting<'_>) -> Vec<Lack> {
    match target {
        Target::Megatron => megatron::lacks_of_model(setting),
    }
}

/// What it is told of a plan's model.
pub(super) fn model_arguments(target: Target, setting: &Setting<'_>) -> Vec<Argument> {
    match target {
        Target::Megatron => megatron::model_arguments(setting),
    }
}

/// The script that starts a program.
fn started(launcher: Launcher, setting: &Setting<'_>, target: Target, program: &Program) -> File {
    let (name, text) = launch::file(launcher, setting, target.tool(), program);
    File { name, text, is_executable: true }
}
