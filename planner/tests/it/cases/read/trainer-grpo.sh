accelerate launch --num_processes 8 --mixed_precision bf16 grpo.py --model_name_or_path x --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 --max_prompt_length 512 --max_completion_length 1536 --num_generations 8 --bf16 true
