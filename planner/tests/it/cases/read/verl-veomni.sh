#!/bin/bash
# The engine is not FSDP, so that its degrees are under keys of its own.
python3 -m verl.trainer.main_ppo model_engine=veomni actor_rollout_ref.actor.veomni.expert_parallel_size=4 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
    data.max_prompt_length=1024 data.max_response_length=1024 trainer.n_gpus_per_node=8 trainer.nnodes=2
