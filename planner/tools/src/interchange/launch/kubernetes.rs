//! Kubernetes manifests: a `PyTorchJob` of Kubeflow's trainer, or an `MPIJob` where each rank is a process.

use std::fmt::Write as _;

use ir::cluster::Platform;

use super::super::file::filled;
use super::super::view::ExportView;
use super::program::{Program, Starter};
use super::{mpirun, torchrun};

pub(super) fn file(view: &ExportView<'_>, tool: &str, program: &Program) -> (String, String) {
    let text = if program.starter == Starter::Mpi {
        mpi(view, tool, program)
    } else {
        pytorch(view, tool, program)
    };
    // The suffix keeps the name apart from a configuration named after the tool.
    (format!("{}-job.yaml", program.name), text)
}

/// A text as a YAML block, indented by `indent` blanks.
fn block(text: &str, indent: usize) -> String {
    let line = |line: &str| {
        if line.is_empty() { "\n".to_owned() } else { format!("{}{line}\n", " ".repeat(indent)) }
    };
    text.lines().map(line).collect()
}

/// Files that a program reads, as the data of a `ConfigMap`.
fn files(program: &Program) -> String {
    let mut text = String::new();
    for file in &program.extra_files {
        let _ = write!(text, "  {}: |\n{}", file.name, block(&file.text, 4));
    }
    text
}

/// The accelerators that a pod requests, if its machines have any.
fn resources(view: &ExportView<'_>) -> String {
    let [_, gpus] = view.nodes();
    let resource = match view.plan.cluster.gpu.architecture.platform() {
        Platform::Cpu => return String::new(),
        Platform::Nvidia => "nvidia.com/gpu",
        Platform::Amd => "amd.com/gpu",
        Platform::Tpu => "google.com/tpu",
        Platform::Trainium => "aws.amazon.com/neuron",
        Platform::Gaudi => "habana.ai/gaudi",
    };
    block(&format!("resources:\n  limits:\n    {resource}: {gpus}\n"), 14)
}

fn container(program: &Program, resources: &str, command: &str) -> String {
    // Kubeflow's operator looks for containers by this name.
    let name = if program.starter == Starter::Mpi { "mpi" } else { "pytorch" };
    filled(
        include_str!("container.yaml.template"),
        &[
            ("name", &name),
            ("command", &command),
            ("resources", &resources),
            ("program", &program.name),
        ],
    )
}

fn pytorch(view: &ExportView<'_>, tool: &str, program: &Program) -> String {
    let [nodes, gpus] = view.nodes();
    // Kubeflow's operator numbers the pods by RANK and gives all of them the address of pod 0.
    let script = torchrun::text(view, tool, program)
        .replace("NODE_RANK=${NODE_RANK:?", "NODE_RANK=${RANK:?");
    let of = |replicas: u32| {
        format!(
            "      replicas: {replicas}\n      restartPolicy: OnFailure\n      template:\n        spec:\n{}",
            container(program, &resources(view), "[\"bash\", \"/plan/run.sh\"]")
        )
    };
    let workers = match nodes {
        1 => String::new(),
        _ => format!("    Worker:\n{}", of(nodes - 1)),
    };
    filled(
        include_str!("pytorch_job.yaml.template"),
        &[
            ("heading", &view.heading(tool)),
            ("name", &program.name),
            ("script", &block(&script, 4)),
            ("files", &files(program)),
            ("gpus", &gpus),
            ("leader", &of(1)),
            ("workers", &workers),
        ],
    )
}

fn mpi(view: &ExportView<'_>, tool: &str, program: &Program) -> String {
    let [nodes, gpus] = view.nodes();
    let (_, script) = mpirun::file(view, tool, program);
    // Kubeflow's operator lists the workers in this file.
    let start = "[\"env\", \"HOSTFILE=/etc/mpi/hostfile\", \"bash\", \"/plan/run.sh\"]";
    let launcher = container(program, "", start);
    filled(
        include_str!("mpi_job.yaml.template"),
        &[
            ("heading", &view.heading(tool)),
            ("name", &program.name),
            ("script", &block(&script, 4)),
            ("files", &files(program)),
            ("gpus", &gpus),
            ("launcher", &launcher),
            ("nodes", &nodes),
            ("worker", &container(program, &resources(view), SERVER)),
        ],
    )
}

/// Command of a worker, which waits for the launcher.
const SERVER: &str = "[\"/usr/sbin/sshd\", \"-De\"]";
