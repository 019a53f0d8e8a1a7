#!/bin/bash
PARALLEL=(
    --tensor-model-parallel-size 4 --sequence-parallel
    --pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 22
    --expert-model-parallel-size 16 --expert-tensor-parallel-size 1
)
ray job submit --address http://127.0.0.1:8265 -- python3 train.py \
    --actor-num-nodes 8 --actor-num-gpus-per-node 8 \
    --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 256) \
    --global-batch-size 64 --micro-batch-size 1 ${PARALLEL[@]}
