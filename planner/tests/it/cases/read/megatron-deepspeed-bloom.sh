#!/bin/bash
# BLOOM's pipeline: the table of tokens and the head count as a layer each.
set -u
ARGUMENTS=(
    --num-layers 70 --hidden-size 14336 --num-attention-heads 112
    --position-embedding-type alibi --pp-partition-method 'type:transformer|embedding'
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12
    --micro-batch-size 2 --global-batch-size 2_048 --seq-length 2048 --bf16
    --checkpoint-activations
)
CLIP=1.0
torchrun --nproc_per_node 8 --nnodes 48 --rdzv_conf timeout=900,read_timeout=300 pretrain_gpt.py \
    "${ARGUMENTS[@]+"${ARGUMENTS[@]}"}" ${CLIP:+--clip-grad "$CLIP"} --zero-stage 0 --deepspeed
