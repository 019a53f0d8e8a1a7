#!/bin/bash
# A program of its own with verl's keys, of the sizes of all ranks together.
python3 -m main_ppo \
    data.train_batch_size=512 \
    data.max_prompt_length=1024 \
    data.max_response_length=1024 \
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.actor.ppo_micro_batch_size=64 \
    actor_rollout_ref.actor.fsdp_config.param_offload=true \
    actor_rollout_ref.actor.fsdp_config.offload_policy=true \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1
