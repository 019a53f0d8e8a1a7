#!/bin/bash
# A launch script with what people write in them.
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NNODES=$((1 + 0))
TP=2
if [ "$TP" -gt 1 ]; then
  EXTRA="--sequence-parallel"
fi
MODEL_ARGS=(
    --num-layers 4 --hidden-size 1024
    --num-attention-heads 16
)
for i in 1 2; do echo "$i"; done
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes "$NNODES" pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 $EXTRA \
    --micro-batch-size 1 --global-batch-size 32 --seq-length 2048 \
    --bf16 --use-distributed-optimizer 2>&1 | tee "log-$(date +%s).txt"
