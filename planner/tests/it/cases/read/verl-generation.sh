python3 -m verl.trainer.main_generation trainer.nnodes=1 trainer.n_gpus_per_node=8 data.path=test.parquet \
    data.n_samples=1 data.output_path=answers.parquet model.path=deepseek-ai/deepseek-llm-7b-chat \
    rollout.prompt_length=2048 rollout.response_length=1024 rollout.tensor_model_parallel_size=2
