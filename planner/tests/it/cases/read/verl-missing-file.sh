python3 -m verl.trainer.main_ppo --config-name=elsewhere.yaml actor_rollout_ref.model.path=x \
    trainer.n_gpus_per_node=8 trainer.nnodes=2 data.max_prompt_length=1024 data.max_response_length=3072
