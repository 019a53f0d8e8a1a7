#!/bin/bash
SP=4
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py \
  --deepspeed --zero-stage 0 --no-pipeline-parallel --deepspeed-activation-checkpointing --bf16 \
  --ds-sequence-parallel-size $SP --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-key-value-heads 8 \
  --swiglu --normalization rmsnorm --disable-bias-linear --use-rotary-position-embeddings \
  --untie-embeddings-and-output-weights --no-query-key-layer-scaling \
  --seq-length 32768 --max-position-embeddings 32768 --micro-batch-size 1 --global-batch-size 8 \
  --hidden-dropout 0 --attention-dropout 0 --num-experts 1
