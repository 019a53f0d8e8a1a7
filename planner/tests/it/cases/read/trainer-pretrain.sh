#!/bin/bash
# DeepSpeed's file has no number format, and parameters on the host, which its stage 2 leaves where they are.
cat > ds.json <<EOF
{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
 "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}
EOF
deepspeed --include localhost:0,1,2,3 pretrain_clm.py --deepspeed ds.json --bf16 --block_size 4096 \
    --per_device_train_batch_size 10 --gradient_accumulation_steps 4 --model_name_or_path x
