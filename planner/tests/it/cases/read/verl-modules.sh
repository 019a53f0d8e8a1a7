python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer actor_rollout_ref.actor.strategy=megatron \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=selective \
    "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_modules=[\"core_attn\",\"moe\"]" \
    trainer.n_gpus_per_node=8 trainer.nnodes=1 data.max_prompt_length=1024 data.max_response_length=1024
