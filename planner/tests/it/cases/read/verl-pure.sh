python3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8 trainer.nnodes=1 \
    data.max_prompt_length=512 data.max_response_length=1536 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
    actor_rollout_ref.actor.fsdp_config.model_dtype=bf16 actor_rollout_ref.actor.optim.optimizer=AdamW8bit
