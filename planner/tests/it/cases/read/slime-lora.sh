N=${SAMPLES}
ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 4 --hf-checkpoint /models/Qwen3-8B \
  --lora-rank 32 --lora-alpha 32 --target-modules all-linear --rollout-batch-size 16 --n-samples-per-prompt $N \
  --global-batch-size 128 --tensor-model-parallel-size 2 --sequence-parallel --recompute-granularity full \
  --recompute-method uniform --recompute-num-layers 1 --attention-dropout 0.0 --hidden-dropout 0.0
