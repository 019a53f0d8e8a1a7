//! A script that calls Open MPI's `mpirun`.

use super::super::file::filled;
use super::super::view::ExportView;
use super::program::{HERE, Program, Starter, arrays, command, exports, names};

pub(super) fn file(view: &ExportView<'_>, tool: &str, program: &Program) -> (String, String) {
    let [nodes, gpus] = view.nodes();
    let hosts = if nodes > 1 && !view.plan.hosts.is_empty() {
        "HOSTFILE=${HOSTFILE:-$(dirname \"${BASH_SOURCE[0]}\")/hostfile}\n\
         MASTER_ADDR=${MASTER_ADDR:-$(head -n 1 \"$HOSTFILE\" | cut -d ' ' -f 1)}\n"
    } else if nodes > 1 {
        "HOSTFILE=${HOSTFILE:?a file with the names of the nodes, a line each}\n\
         MASTER_ADDR=${MASTER_ADDR:-$(head -n 1 \"$HOSTFILE\" | cut -d ' ' -f 1)}\n"
    } else {
        "MASTER_ADDR=127.0.0.1\n"
    };
    let hostfile = if nodes > 1 { " --hostfile \"$HOSTFILE\"" } else { "" };
    let passed: Vec<String> =
        names(view, program).iter().map(|name| format!("-x {name}")).collect();
    let passed = passed.join(" ");
    let start = if program.starter == Starter::Mpi {
        format!(
            "mpirun{hostfile} --np {} --map-by ppr:{gpus}:node --bind-to none {passed} \\\n    {}",
            view.plan.num_gpus,
            command(program)
        )
    } else {
        format!(
            "mpirun{hostfile} --np {nodes} --map-by ppr:1:node --bind-to none {passed} \\\n    -x NUM_NODES -x GPUS_PER_NODE \
             -x MASTER_ADDR -x MASTER_PORT{} \\\n    bash -c 'NODE_RANK=$OMPI_COMM_WORLD_RANK; exec {} \"$@\"' node \\\n    {}",
            if program.starter.is_accelerate() { " -x HERE" } else { "" },
            program.starter.words(),
            command(program)
        )
    };
    let text = filled(
        include_str!("mpirun.sh.template"),
        &[
            ("heading", &view.heading(tool)),
            ("hosts", &hosts),
            ("nodes", &nodes),
            ("gpus", &gpus),
            ("exports", &exports(view, program, HERE)),
            ("arrays", &arrays(program)),
            ("export_here", &program.starter.export_here()),
            ("start", &start),
        ],
    );
    (format!("{}-mpirun.sh", program.name), text)
}
