//! Scripts and manifests that start a program on every rank of a plan.

mod kubernetes;
mod mpirun;
mod program;
mod slurm;
mod torchrun;

use super::view::ExportView;
pub(super) use program::{Program, Starter};

/// The variable by which `torchrun` knows the nodes where no option says.
pub(super) const NUM_NODES: &str = "PET_NNODES";

/// The same of a node's ranks.
pub(super) const RANKS_PER_NODE: &str = "PET_NPROC_PER_NODE";

/// What starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launcher {
    /// A script that is run once on each node.
    Torchrun,
    /// Slurm, by `sbatch`.
    Slurm,
    /// Open MPI's `mpirun`.
    Mpirun,
    /// Kubernetes with Kubeflow's trainer.
    Kubernetes,
}

impl Launcher {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Torchrun, Self::Slurm, Self::Mpirun, Self::Kubernetes];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::Slurm => "slurm",
            Self::Mpirun => "mpirun",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// The file that starts a program, with its name.
pub(super) fn file(
    launcher: Launcher,
    view: &ExportView<'_>,
    tool: &str,
    program: &Program,
) -> (String, String) {
    match launcher {
        // A process for each rank takes something that starts them.
        Launcher::Torchrun if program.starter == Starter::Mpi => mpirun::file(view, tool, program),
        Launcher::Torchrun => torchrun::file(view, tool, program),
        Launcher::Slurm => slurm::file(view, tool, program),
        Launcher::Mpirun => mpirun::file(view, tool, program),
        Launcher::Kubernetes => kubernetes::file(view, tool, program),
    }
}
