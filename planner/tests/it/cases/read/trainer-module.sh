#!/bin/bash
python -m torch.distributed.launch --nproc_per_node 2 -m pkg.train --bf16 --model_max_length 2048 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --model_name_or_path x
