//! A script that runs once on each node.

use super::super::file::filled;
use super::super::view::ExportView;
use super::program::{HERE, Program, arrays, command, exports};

pub(super) fn file(view: &ExportView<'_>, tool: &str, program: &Program) -> (String, String) {
    (format!("{}.sh", program.name), text(view, tool, program))
}

/// Text of the script, which the Kubernetes manifest contains too.
pub(super) fn text(view: &ExportView<'_>, tool: &str, program: &Program) -> String {
    let [nodes, gpus] = view.nodes();
    let last = nodes - 1;
    let (run, rendezvous) = if nodes > 1 {
        (
            format!(
                "# Run once on each of {nodes} nodes, NODE_RANK from 0 to {last}; MASTER_ADDR is the name of node 0. Ranks \
                 count node\n# by node, as the plan has them.\n"
            ),
            format!(
                "NUM_NODES={nodes}\nNODE_RANK=${{NODE_RANK:?which node this is, from 0 to {last}}}\n\
                 MASTER_ADDR=${{MASTER_ADDR:?the name of node 0}}\nMASTER_PORT=${{MASTER_PORT:-29500}}\n"
            ),
        )
    } else {
        (
            "# Run on one node.\n".to_owned(),
            "NUM_NODES=1\nNODE_RANK=0\nMASTER_ADDR=127.0.0.1\nMASTER_PORT=${MASTER_PORT:-29500}\n"
                .to_owned(),
        )
    };
    filled(
        include_str!("torchrun.sh.template"),
        &[
            ("heading", &view.heading(tool)),
            ("run", &run),
            ("rendezvous", &rendezvous),
            ("gpus", &gpus),
            ("exports", &exports(view, program, HERE)),
            ("arrays", &arrays(program)),
            ("start", &program.starter.words()),
            ("command", &command(program)),
        ],
    )
}
