# source: Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (arXiv 2104.04473), table 1: a trillion parameters on 3,072 A100
# model: models/megatron-1t.json
# cluster: a100
# gpus: 3072
python pretrain_gpt.py \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 64 \
    --num-layers 128 --hidden-size 25600 --num-attention-heads 160 \
    --seq-length 2048 --micro-batch-size 1 --global-batch-size 3072 --fp16 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --hidden-dropout 0.1 --attention-dropout 0.1
