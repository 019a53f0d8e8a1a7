//! A Slurm job, for `sbatch`.

use ir::cluster::Architecture;
use ir::replication::DataParallelMethod;

use super::super::file::filled;
use super::super::view::ExportView;
use super::program::{HOSTFILE, Program, Starter, arrays, command, exports};

pub(super) fn file(view: &ExportView<'_>, tool: &str, program: &Program) -> (String, String) {
    let is_mpi = program.starter == Starter::Mpi;
    let how = if is_mpi {
        "A task is a rank; ranks count node by node, as the plan has them."
    } else {
        "A task a node starts its ranks; nodes count in the order of the job's list, so that ranks lie as planned."
    };
    let start = if is_mpi { start_ranks(view, program) } else { start_nodes(view, program) };
    let start = if view.plan.hosts.is_empty() {
        start
    } else {
        // If the program reads files, `HERE` is set already.
        let here =
            if program.extra_files.is_empty() { here(program) + "\n" } else { String::new() };
        format!(
            "# Nodes in the order of the plan.\n{here}export SLURM_HOSTFILE=\"$HERE/{HOSTFILE}\"\n{start}"
        )
    };
    let first = "$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)";
    let first = view.plan.hosts.first().map_or(first, String::as_str);
    let [nodes, gpus] = view.nodes();
    let text = filled(
        include_str!("slurm.sbatch.template"),
        &[
            ("options", &options(view, program)),
            ("heading", &view.heading(tool)),
            ("how", &how),
            ("first", &first),
            ("nodes", &nodes),
            ("gpus", &gpus),
            ("exports", &exports(view, program, &here(program))),
            ("arrays", &arrays(program)),
            ("export_here", &program.starter.export_here()),
            ("start", &start),
        ],
    );
    (name(program), text)
}

fn name(program: &Program) -> String {
    format!("{}.sbatch", program.name)
}

/// `#SBATCH` lines: the resources and options of the job.
fn options(view: &ExportView<'_>, program: &Program) -> String {
    let name = program.name;
    let [nodes, gpus] = view.nodes();
    let mut options = vec![format!("job-name={name}"), format!("nodes={nodes}")];
    options.push(match program.starter {
        Starter::Mpi if is_even(view) => format!("ntasks-per-node={gpus}"),
        Starter::Mpi => format!("ntasks={}", view.plan.num_gpus),
        _ => "ntasks-per-node=1".to_owned(),
    });
    if view.plan.cluster.gpu.architecture != Architecture::Cpu {
        options.push(format!("gpus-per-node={gpus}"));
    }
    if !view.plan.hosts.is_empty() {
        options.push(format!("nodelist={}", view.plan.hosts.join(",")));
    }
    options.push("exclusive".to_owned());
    if keeps_checkpoints(view, program) {
        options.extend(["requeue", "open-mode=append"].map(str::to_owned));
    }
    options.push(format!("output={name}-%j.log"));
    options.iter().flat_map(|option| ["#SBATCH --", option, "\n"]).collect()
}

/// Returns whether the ranks fill all nodes.
fn is_even(view: &ExportView<'_>) -> bool {
    let [nodes, gpus] = view.nodes();
    view.plan.num_gpus == nodes * gpus
}

/// Returns whether a requeued job can resume: the executor can, unless replicas train asynchronously.
const fn keeps_checkpoints(view: &ExportView<'_>, program: &Program) -> bool {
    matches!(program.starter, Starter::Mpi)
        && !matches!(view.training.data_parallel_method, DataParallelMethod::Asynchronous { .. })
}

/// Shell lines that find the script's folder. `sbatch` runs a copy of the script, but Slurm knows the original's path
/// and arguments.
fn here(program: &Program) -> String {
    format!(
        "HERE=$(scontrol show job \"$SLURM_JOB_ID\" | sed -n 's|^ *Command=\\(.*\\)/{}.*|\\1|p')\n\
         HERE=${{HERE:-$SLURM_SUBMIT_DIR}}",
        name(program).replace('.', "[.]"),
    )
}

/// `srun` command with a task for each rank.
fn start_ranks(view: &ExportView<'_>, program: &Program) -> String {
    // With block distribution, nodes that the ranks do not fill would get equal numbers of ranks.
    let places = if !view.plan.hosts.is_empty() {
        "--distribution=arbitrary"
    } else if is_even(view) {
        "--ntasks-per-node=\"$GPUS_PER_NODE\" --distribution=block"
    } else {
        "--distribution=plane=\"$GPUS_PER_NODE\""
    };
    let ranks = view.plan.num_gpus;
    let srun = format!(
        "srun --nodes=\"$NUM_NODES\" --ntasks={ranks} {places} \\\n    \
         --cpu-bind=none --mpi=pmix --kill-on-bad-exit=1 \\\n    {}",
        command(program)
    );
    if !keeps_checkpoints(view, program) {
        return srun;
    }
    format!(
        "# A folder that all nodes reach. A job whose node fails is queued again, and goes on from the newest.\n\
         CHECKPOINTS=${{CHECKPOINTS:-checkpoints}}\n\n{}\n{srun} --checkpoint \"$CHECKPOINTS\"",
        filled(include_str!("which_went.sh.template"), &[("ranks", &ranks)])
    )
}

/// `srun` command with a task for each node, which starts the node's ranks.
fn start_nodes(view: &ExportView<'_>, program: &Program) -> String {
    // Slurm numbers nodes in its own order, whereas tasks follow the order of the host file.
    let [places, rank] = if view.plan.hosts.is_empty() {
        ["--ntasks-per-node=1 --distribution=block", "SLURM_NODEID"]
    } else {
        ["--distribution=arbitrary", "SLURM_PROCID"]
    };
    format!(
        "# {rank} is that of the task, so a shell of its own reads it.\n\
         srun --nodes=\"$NUM_NODES\" --ntasks=\"$NUM_NODES\" {places} \\\n    \
         --cpu-bind=none --kill-on-bad-exit=1 \\\n    \
         bash -c 'NODE_RANK=${rank}; exec {} \"$@\"' node \\\n    {}",
        program.starter.words(),
        command(program)
    )
}
