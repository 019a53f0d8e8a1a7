NPROC_PER_NODE=8 megatron rlhf --rlhf_type grpo --model Qwen/Qwen3-30B-A3B --external_plugins rewards/plugin.py \
  --use_vllm true --tensor_model_parallel_size 2 --expert_model_parallel_size 8 --sequence_parallel true \
  --train_type lora --lora_rank 8 --target_modules all-linear --max_length 8192 --micro_batch_size 1 \
  --global_batch_size 32 --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
