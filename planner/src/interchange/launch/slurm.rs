//! A job for `sbatch`.

use super::super::setting::Setting;
use super::program::{Program, Starter, arrays, command, comment, exports};

pub(super) fn file(setting: &Setting<'_>, tool: &str, program: &Program) -> (String, String) {
    let [nodes, gpus] = setting.nodes();
    let heading = comment(&setting.heading(tool));
    let is_mpi = program.starter == Starter::Mpi;
    let tasks = if is_mpi { gpus } else { 1 };
    let how = if is_mpi {
        "A task is a rank; ranks count node by node, as the plan has them."
    } else {
        "A task a node starts its ranks; nodes count in the order of the job's list, so that ranks lie as planned."
    };
    let start = if is_mpi {
        format!(
            "srun --nodes=\"$NUM_NODES\" --ntasks={} --ntasks-per-node=\"$GPUS_PER_NODE\" --distribution=block \
             --mpi=pmix \\\n    --kill-on-bad-exit=1 {}",
            setting.plan.num_gpus,
            command(program)
        )
    } else {
        format!(
            "# SLURM_NODEID is that of the task, so a shell of its own reads it.\n\
             srun --nodes=\"$NUM_NODES\" --ntasks=\"$NUM_NODES\" --ntasks-per-node=1 --kill-on-bad-exit=1 \\\n    \
             bash -c 'NODE_RANK=$SLURM_NODEID; exec {} \"$@\"' node \\\n    {}",
            program.starter.words(),
            command(program)
        )
    };
    let text = format!(
        "#!/usr/bin/env bash\n\
         #SBATCH --job-name={name}\n\
         #SBATCH --nodes={nodes}\n\
         #SBATCH --ntasks-per-node={tasks}\n\
         #SBATCH --gpus-per-node={gpus}\n\
         #SBATCH --exclusive\n\
         #SBATCH --output={name}-%j.log\n\
         {heading}#\n\
         # Submit with sbatch, and with it what your cluster asks for: --account, --partition, --time.\n\
         # {how}\n\
         set -euo pipefail\n\n\
         export NUM_NODES={nodes} GPUS_PER_NODE={gpus}\n\
         MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n\
         MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n\
         export MASTER_ADDR MASTER_PORT\n\n{exports}\n{arrays}\n{export_here}{start}\n",
        name = program.name,
        exports = exports(setting, program),
        arrays = arrays(program),
        export_here = if program.starter.is_accelerate() { "export HERE\n" } else { "" },
    );
    (format!("{}.sbatch", program.name), text)
}
