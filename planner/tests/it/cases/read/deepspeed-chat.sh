#!/bin/bash
ZERO_STAGE=$2
if [ "$ZERO_STAGE" == "" ]; then
    ZERO_STAGE=3
fi
deepspeed --num_gpus 8 main.py --data_path a --model_name_or_path meta-llama/Llama-2-7b-hf \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_seq_len 1024 --gradient_checkpointing \
    --zero_stage $ZERO_STAGE --offload --deepspeed
