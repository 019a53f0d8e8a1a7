#!/bin/bash
# Adapters that are not LoRA's, as in ms-swift's examples/train/tuners/boft.
NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --tuner_type boft --max_length 2048 --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 16
