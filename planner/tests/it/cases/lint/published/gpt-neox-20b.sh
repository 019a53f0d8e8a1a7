# source: Black et al. 2022, GPT-NeoX-20B (arXiv 2204.06745), section 3, and EleutherAI/gpt-neox, configs/20B.yml
# model: models/gpt-neox-20b
# cluster: a100-40gb
# gpus: 96
python pretrain_gpt.py \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 \
    --num-layers 44 --hidden-size 6144 --num-attention-heads 64 \
    --seq-length 2048 --micro-batch-size 4 --global-batch-size 1536 --fp16 \
    --use-distributed-optimizer --make-vocab-size-divisible-by 256 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --hidden-dropout 0 --attention-dropout 0
