//! Kubernetes manifests: a `PyTorchJob` of Kubeflow's trainer, or an `MPIJob` where each rank is a process.

use std::fmt::Write as _;

use ir::cluster::Platform;

use super::super::view::ExportView;
use super::program::{Program, Starter, comment};
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
    for file in &program.beside {
        let _ = write!(text, "  {}: |\n{}", file.name, block(&file.text, 4));
    }
    text
}

/// Resource name of the accelerators that a pod requests.
fn resource(view: &ExportView<'_>) -> &'static str {
    match view.plan.cluster.gpu.architecture.platform() {
        Platform::Nvidia | Platform::Cpu => "nvidia.com/gpu",
        Platform::Amd => "amd.com/gpu",
        Platform::Tpu => "google.com/tpu",
        Platform::Trainium => "aws.amazon.com/neuron",
        Platform::Gaudi => "habana.ai/gaudi",
    }
}

fn container(program: &Program, gpus: (u32, &str), command: &str) -> String {
    let (gpus, resource) = gpus;
    format!(
        "          containers:\n            - name: {}\n              \
         # Yours: an image that has the tool.\n              image: IMAGE\n              command: {command}\n              \
         resources:\n                limits:\n                  {resource}: {gpus}\n              volumeMounts:\n                \
         - name: plan\n                  mountPath: /plan\n                - name: shared-memory\n                  \
         mountPath: /dev/shm\n          volumes:\n            - name: plan\n              configMap:\n                \
         name: {}-plan\n            - name: shared-memory\n              emptyDir:\n                medium: Memory\n",
        // Kubeflow's operator looks for containers by this name.
        if program.starter == Starter::Mpi { "mpi" } else { "pytorch" },
        program.name,
    )
}

fn pytorch(view: &ExportView<'_>, tool: &str, program: &Program) -> String {
    let [nodes, gpus] = view.nodes();
    let heading = comment(&view.heading(tool));
    // Kubeflow's operator numbers the pods by RANK and gives all of them the address of pod 0.
    let script = torchrun::text(view, tool, program)
        .replace("NODE_RANK=${NODE_RANK:?", "NODE_RANK=${RANK:?");
    let of = |replicas: u32| {
        format!(
            "      replicas: {replicas}\n      restartPolicy: OnFailure\n      template:\n        spec:\n{}",
            container(program, (gpus, resource(view)), "[\"bash\", \"/plan/run.sh\"]")
        )
    };
    let workers = match nodes {
        1 => String::new(),
        _ => format!("    Worker:\n{}", of(nodes - 1)),
    };
    format!(
        "{heading}#\n# kubectl apply --filename FILE. Pods are numbered, and ranks count pod by pod, as the plan has them.\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}-plan\ndata:\n  run.sh: |\n{}{}---\n\
         apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: {name}\nspec:\n  nprocPerNode: \"{gpus}\"\n  \
         pytorchReplicaSpecs:\n    Master:\n{}{workers}",
        block(&script, 4),
        files(program),
        of(1),
        name = program.name,
    )
}

fn mpi(view: &ExportView<'_>, tool: &str, program: &Program) -> String {
    let [nodes, gpus] = view.nodes();
    let heading = comment(&view.heading(tool));
    let (_, script) = mpirun::file(view, tool, program);
    // Kubeflow's operator lists the workers in this file.
    let start = "[\"env\", \"HOSTFILE=/etc/mpi/hostfile\", \"bash\", \"/plan/run.sh\"]";
    let launcher = container(program, (0, resource(view)), start).replace(
        &format!(
            "              resources:\n                limits:\n                  {}: 0\n",
            resource(view)
        ),
        "",
    );
    format!(
        "{heading}#\n# kubectl apply --filename FILE. Ranks count worker by worker, as the plan has them.\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}-plan\ndata:\n  run.sh: |\n{}{}---\n\
         apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: {name}\nspec:\n  slotsPerWorker: {gpus}\n  \
         mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n      template:\n        spec:\n{launcher}    Worker:\n      \
         replicas: {nodes}\n      template:\n        spec:\n{}",
        block(&script, 4),
        files(program),
        container(program, (gpus, resource(view)), "[\"/usr/sbin/sshd\", \"-De\"]"),
        name = program.name,
    )
}
