//! Scripts and manifests that start a program on every rank of a plan.

mod program;
mod slurm;
mod torchrun;

use super::setting::Setting;
pub(super) use program::Program;

/// What starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Launcher {
    /// PyTorch's, on each node by hand.
    Torchrun,
    /// Slurm, by `sbatch`.
    Slurm,
}

impl Launcher {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Torchrun, Self::Slurm];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::Slurm => "slurm",
        }
    }
}

/// The file that starts a program, with its name.
pub(super) fn file(
    launcher: Launcher,
    setting: &Setting<'_>,
    tool: &str,
    program: &Program,
) -> (String, String) {
    match launcher {
        Launcher::Torchrun => torchrun::file(setting, tool, program),
        Launcher::Slurm => slurm::file(setting, tool, program),
    }
}
