# source: Le Scao et al. 2022, BLOOM (arXiv 2211.05100), section 3.2.3, and bigscience-workshop/bigscience, train/tr11-176B-ml
# model: models/bloom-176b
# cluster: a100
# gpus: 384
python pretrain_gpt.py \
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12 \
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split \
    --num-layers 70 --hidden-size 14336 --num-attention-heads 112 \
    --seq-length 2048 --micro-batch-size 2 --global-batch-size 2048 \
    --bf16 --use-distributed-optimizer \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --hidden-dropout 0.0 --attention-dropout 0.0
