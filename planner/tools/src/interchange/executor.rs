//! This project's executor: it runs the plan itself, and MPI starts its ranks.

use super::argument::{Argument, Section};
use super::file::File;
use super::launch::{Program, Starter};
use super::view::ExportView;

/// The program to start. It reads the plan, which every export includes.
pub(super) fn program(view: &ExportView<'_>, plan: &File) -> Program {
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
        environment: Vec::new(),
        sections: vec![Section::new(
            "how ranks reach each other; the layout is in plan.json",
            arguments,
        )],
        own: vec![Section::new("steps; --data says what to train on", own)],
        last: Vec::new(),
        starter: Starter::Mpi,
        beside: vec![plan.clone()],
    }
}
