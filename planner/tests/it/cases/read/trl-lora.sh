#!/bin/bash
torchrun --nproc_per_node 8 sft.py \
    --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 --bf16 true --gradient_checkpointing true \
    --use_peft true --lora_r 16 --lora_alpha 32 --lora_target_modules q_proj,v_proj \
    --max_length 4096 --use_liger_kernel true --optim paged_adamw_8bit --output_dir out
