#!/bin/bash
# LoRA with the rank left out, in a program of LLaVA's kin, whose default is 64 (`llava/train/train.py`).
deepspeed --num_gpus 8 llava/train/train_mem.py \
    --lora_enable True \
    --bf16 True \
    --model_max_length 2048 \
    --gradient_checkpointing True \
    --per_device_train_batch_size 16
