# A batch by the steps for each batch of answers; a list that goes on with what a command prints.
python3 train.py \
    --actor-num-nodes 1 --actor-num-gpus-per-node 8 \
    --num-rollout 100 --rollout-batch-size 32 --n-samples-per-prompt 8 --num-steps-per-rollout 4 \
    --rollout-max-response-len 8192 \
    --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 256) \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
