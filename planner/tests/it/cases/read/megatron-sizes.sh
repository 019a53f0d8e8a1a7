#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 \
    --global-batch-size 64 --seq-length 8192 --bf16 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
    --swiglu --ffn-hidden-size 11008 --disable-bias-linear --untie-embeddings-and-output-weights \
    --group-query-attention --num-query-groups 8 --window-size 4096,0 --mtp-num-layers 1 --moe-layer-freq 1
