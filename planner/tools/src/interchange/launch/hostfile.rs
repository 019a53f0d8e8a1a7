//! The file with the names of the nodes.

use super::super::file::File;
use super::super::view::ExportView;
use super::program::{Program, Starter};

/// Name of the file.
pub(super) const HOSTFILE: &str = "hostfile";

/// The nodes in the order of their ranks, a line each, or where Slurm starts every rank, a line a rank; `None` where
/// they are not known.
pub(super) fn hostfile(view: &ExportView<'_>, program: &Program, is_slurm: bool) -> Option<File> {
    if view.plan.hosts.is_empty() {
        return None;
    }
    let [_, gpus] = view.nodes();
    let lines = if is_slurm && program.starter == Starter::Mpi { gpus as usize } else { 1 };
    let hosts = view.plan.hosts.iter().flat_map(|host| std::iter::repeat_n(host.as_str(), lines));
    let hosts: Vec<&str> = hosts.take(view.plan.num_gpus as usize).collect();
    Some(File::text(HOSTFILE, hosts.join("\n") + "\n"))
}
