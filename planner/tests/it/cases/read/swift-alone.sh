#!/bin/bash
NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --train_type full --torch_dtype bfloat16 --max_length 2048 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 2
