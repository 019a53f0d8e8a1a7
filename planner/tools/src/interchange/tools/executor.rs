//! This project's executor: it runs the plan itself, and MPI starts its ranks.

use crate::interchange::argument::{Argument, Section};
use crate::interchange::file::File;
use crate::interchange::launch::{Program, Starter};
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::view::ExportView;

pub(super) static TOOL: Tool = Tool { states_loss: true, ..Tool::new(Target::EXECUTOR, program) };

/// The program to start. It reads the plan, which every export includes.
fn program(view: &ExportView<'_>, plan: &File) -> Program {
    let has_gpus = view.plan.cluster.gpu.architecture != ir::cluster::Architecture::Cpu;
    let mut arguments =
        vec![Argument::value("--communicator", "mpi", "a rank is a process that MPI starts")];
    if has_gpus {
        arguments.push(Argument::value("--backend", "cuda", "a GPU for each rank"));
    }
    let own = vec![Argument::value("--steps", 20, "steps")];
    Program {
        name: "executor",
        command: ["executor", "run", &plan.name].map(str::to_owned).to_vec(),
        sections: vec![Section::new(
            "how ranks reach each other; the layout is in plan.json",
            arguments,
        )],
        own: vec![Section::new("steps; --data says what to train on", own)],
        starter: Starter::Mpi,
        extra_files: vec![plan.clone()],
        ..Program::default()
    }
}
