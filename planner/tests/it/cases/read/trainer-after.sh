accelerate launch annotate/get_rewards.py --dataset_name_or_path x --output_dir y
accelerate launch --num_processes 8 --mixed_precision bf16 run_dpo.py --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 16 --max_length 2048 --bf16 true
