//! Scripts and manifests that start a program on every rank of a plan.

mod kubernetes;
mod mpirun;
mod program;
mod slurm;
mod torchrun;

use super::file::File;
use super::view::ExportView;
use program::HOSTFILE;
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
        // Programs with one process per rank need `mpirun` to start them.
        Launcher::Torchrun if program.starter == Starter::Mpi => mpirun::file(view, tool, program),
        Launcher::Torchrun => torchrun::file(view, tool, program),
        Launcher::Slurm => slurm::file(view, tool, program),
        Launcher::Mpirun => mpirun::file(view, tool, program),
        Launcher::Kubernetes => kubernetes::file(view, tool, program),
    }
}

/// The nodes in the order of their ranks, one per line; one line per rank if Slurm starts every rank. `None` if the
/// nodes are not known.
pub(super) fn hostfile(
    launcher: Launcher,
    view: &ExportView<'_>,
    program: &Program,
) -> Option<File> {
    if view.plan.hosts.is_empty() {
        return None;
    }
    let [_, gpus] = view.nodes();
    let is_mpi = program.starter == Starter::Mpi;
    let lines = match launcher {
        Launcher::Slurm if is_mpi => gpus as usize,
        Launcher::Slurm | Launcher::Mpirun => 1,
        // Programs with one process per rank need `mpirun` to start them.
        Launcher::Torchrun if is_mpi => 1,
        Launcher::Torchrun | Launcher::Kubernetes => return None,
    };
    let hosts = view.plan.hosts.iter().flat_map(|host| std::iter::repeat_n(host.as_str(), lines));
    let hosts: Vec<&str> = hosts.take(view.plan.num_gpus as usize).collect();
    Some(File::text(HOSTFILE, hosts.join("\n") + "\n"))
}
