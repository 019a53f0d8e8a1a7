//! Scripts and manifests that start a program on every rank of a plan.

mod hostfile;
mod kubernetes;
mod mpirun;
mod program;
mod slurm;
mod torchrun;

use super::file::File;
use super::view::ExportView;
pub(super) use program::{EXPANDABLE_SEGMENTS, ONE_QUEUE, Program, Starter, Variable};

/// Environment variable from which `torchrun` takes the number of nodes where no option sets it.
pub(super) const NUM_NODES: &str = "PET_NNODES";

/// Environment variable from which `torchrun` takes the number of ranks per node where no option sets it.
pub(super) const RANKS_PER_NODE: &str = "PET_NPROC_PER_NODE";

/// Launcher of a plan's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launcher {
    /// A script that runs once on each node.
    Torchrun,
    /// A Slurm job, submitted with `sbatch`.
    Slurm,
    /// Open MPI's `mpirun`.
    Mpirun,
    /// A Kubernetes job of Kubeflow's trainer.
    Kubernetes,
}

impl Launcher {
    /// All launchers.
    pub const ALL: [Self; 4] = [Self::Torchrun, Self::Slurm, Self::Mpirun, Self::Kubernetes];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::Slurm => "slurm",
            Self::Mpirun => "mpirun",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// Name and text of the file that launches a program.
pub(super) fn file(
    launcher: Launcher,
    view: &ExportView<'_>,
    tool: &str,
    program: &Program,
) -> (String, String) {
    match launcher {
        // A process for each rank needs `mpirun` to start it.
        Launcher::Torchrun if program.starter == Starter::Mpi => mpirun::file(view, tool, program),
        Launcher::Torchrun => torchrun::file(view, tool, program),
        Launcher::Slurm => slurm::file(view, tool, program),
        Launcher::Mpirun => mpirun::file(view, tool, program),
        Launcher::Kubernetes => kubernetes::file(view, tool, program),
    }
}

/// The file with the names of the nodes, for launchers that take one.
pub(super) fn hostfile(
    launcher: Launcher,
    view: &ExportView<'_>,
    program: &Program,
) -> Option<File> {
    match launcher {
        Launcher::Slurm => hostfile::hostfile(view, program, true),
        Launcher::Mpirun => hostfile::hostfile(view, program, false),
        Launcher::Torchrun | Launcher::Kubernetes => None,
    }
}
