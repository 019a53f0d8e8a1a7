#!/bin/bash
cat > ds_config.json <<EOF
{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}
EOF
deepspeed --num_gpus 8 finetune_llama.py --deepspeed --deepspeed_config ds_config.json \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --num-layers 32 --hidden-size 4096 \
    --num-attention-heads 32 --ffn-hidden-size 11008 --seq-length 2048 --micro-batch-size 4 --global-batch-size 64 --bf16
