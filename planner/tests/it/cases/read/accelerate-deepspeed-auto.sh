#!/bin/bash
cat > zero3.conf <<EOF
{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
 "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
EOF
accelerate launch --mixed_precision bf16 --num_processes 8 --use_deepspeed --deepspeed_config_file zero3.conf \
    finetune.py --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_seq_length 4096 --use_lora True
