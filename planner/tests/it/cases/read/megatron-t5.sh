#!/bin/bash
# T5 3B as Megatron-LM's pretrain_t5.py takes it: two lengths of sequences.
torchrun --nproc_per_node 8 pretrain_t5.py \
    --encoder-num-layers 24 --decoder-num-layers 24 --hidden-size 1024 --num-attention-heads 32 \
    --kv-channels 128 --ffn-hidden-size 16384 --encoder-seq-length 512 --decoder-seq-length 114 \
    --max-position-embeddings 512 --tensor-model-parallel-size 2 --micro-batch-size 4 \
    --global-batch-size 32 --bf16 --use-distributed-optimizer --attention-dropout 0.1
