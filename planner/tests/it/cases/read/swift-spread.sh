#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --train_type full \
    --torch_dtype bfloat16 --max_length 2048 --per_device_train_batch_size 1
