#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
srun --overlap --nodes=1 --ntasks=1 -w "$head_node" python3 -m verl.trainer.main_ppo \
    data.max_prompt_length=512 data.max_response_length=512 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
    trainer.n_gpus_per_node=8 trainer.nnodes=2
