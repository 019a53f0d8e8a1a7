//! A job for `sbatch`.

use super::super::setting::Setting;
use super::program::{Program, arrays, command, comment, exports};

pub(super) fn file(setting: &Setting<'_>, tool: &str, program: &Program) -> (String, String) {
    let [nodes, gpus] = setting.nodes();
    let heading = comment(&setting.heading(tool));
    let text = format!(
        "#!/usr/bin/env bash\n\
         #SBATCH --job-name={name}\n\
         #SBATCH --nodes={nodes}\n\
         #SBATCH --ntasks-per-node=1\n\
         #SBATCH --gpus-per-node={gpus}\n\
         #SBATCH --exclusive\n\
         #SBATCH --output={name}-%j.log\n\
         {heading}#\n\
         # Submit with sbatch, and with it what your cluster asks for: --account, --partition, --time. One task a node\n\
         # starts its {gpus} ranks; nodes count in the order of the job's list, so that ranks lie as the plan has them.\n\
         set -euo pipefail\n\n\
         NUM_NODES={nodes}\n\
         GPUS_PER_NODE={gpus}\n\
         MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n\
         MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n\
         export MASTER_ADDR MASTER_PORT\n\n{exports}\n{arrays}\n\
         # SLURM_NODEID is that of the task, so a shell of its own reads it.\n\
         srun --nodes=\"$NUM_NODES\" --ntasks=\"$NUM_NODES\" --ntasks-per-node=1 --kill-on-bad-exit=1 \\\n    \
         bash -c 'exec torchrun --nnodes \"$SLURM_NNODES\" --nproc-per-node \"$1\" --node-rank \"$SLURM_NODEID\" \\\n        \
         --master-addr \"$MASTER_ADDR\" --master-port \"$MASTER_PORT\" \"${{@:2}}\"' rank \"$GPUS_PER_NODE\" \\\n    \
         {command}\n",
        name = program.name,
        exports = exports(setting, program),
        arrays = arrays(program),
        command = command(program),
    );
    (format!("{}.sbatch", program.name), text)
}
