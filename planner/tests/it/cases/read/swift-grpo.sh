NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --train_type full --torch_dtype bfloat16 \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_length 4096 --deepspeed zero3 \
    --sleep_level 1 --offload_model true --offload_optimizer true --steps_per_generation 4 --overlong_filter true \
    --epsilon_high 0.28 --importance_sampling_level sequence
