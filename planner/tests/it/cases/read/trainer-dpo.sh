accelerate launch --num_processes 8 --mixed_precision bf16 scripts/run_dpo.py --model_name_or_path x --beta 0.1 \
    --loss_type sigmoid --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 2048 \
    --bf16 true --gradient_checkpointing true
