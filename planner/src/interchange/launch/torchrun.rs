//! A script that is run once on each node.

use super::super::setting::Setting;
use super::program::{Program, arrays, command, comment, exports};

pub(super) fn file(setting: &Setting<'_>, tool: &str, program: &Program) -> (String, String) {
    let [nodes, gpus] = setting.nodes();
    let heading = comment(&setting.heading(tool));
    let (use_, rendezvous) = if nodes > 1 {
        (
            format!(
                "# Run once on each of {nodes} nodes, NODE_RANK from 0 to {}; MASTER_ADDR is the name of node 0. Ranks \
                 count node\n# by node, as the plan has them.\n",
                nodes - 1
            ),
            format!(
                "NUM_NODES={nodes}\nNODE_RANK=${{NODE_RANK:?which node this is, from 0 to {}}}\n\
                 MASTER_ADDR=${{MASTER_ADDR:?the name of node 0}}\nMASTER_PORT=${{MASTER_PORT:-29500}}\n",
                nodes - 1
            ),
        )
    } else {
        (
            "# Run on one node.\n".to_owned(),
            "NUM_NODES=1\nNODE_RANK=0\nMASTER_ADDR=127.0.0.1\nMASTER_PORT=${MASTER_PORT:-29500}\n"
                .to_owned(),
        )
    };
    let text = format!(
        "#!/usr/bin/env bash\n{heading}#\n{use_}set -euo pipefail\n\n{rendezvous}GPUS_PER_NODE={gpus}\n\n{}\n{}\n\
         torchrun --nnodes \"$NUM_NODES\" --nproc-per-node \"$GPUS_PER_NODE\" --node-rank \"$NODE_RANK\" \\\n    \
         --master-addr \"$MASTER_ADDR\" --master-port \"$MASTER_PORT\" \\\n    {}\n",
        exports(setting, program),
        arrays(program),
        command(program),
    );
    (format!("{}.sh", program.name), text)
}
