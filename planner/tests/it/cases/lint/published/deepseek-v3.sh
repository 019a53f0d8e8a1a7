# source: DeepSeek-AI 2024, DeepSeek-V3 (arXiv 2412.19437), section 3.2: 2,048 H800, 16 stages, 64 expert-parallel ranks, ZeRO 1; the stages are those of Megatron-Bridge's recipe
# model: models/deepseek-v3
# cluster: h800
# gpus: 2048
python pretrain_gpt.py \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 16 \
    --pipeline-model-parallel-layout 'Et*3|(t*4|)*14tt*1mL' \
    --expert-model-parallel-size 64 --num-experts 256 --moe-router-topk 8 \
    --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep --moe-grouped-gemm \
    --num-layers 61 --hidden-size 7168 --num-attention-heads 128 --mtp-num-layers 1 \
    --ffn-hidden-size 18432 --swiglu --multi-latent-attention \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 15360 \
    --bf16 --fp8-format e4m3 --fp8-recipe blockwise \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 \
    --recompute-granularity selective --recompute-modules mla_up_proj layernorm moe_act mlp \
    --cross-entropy-loss-fusion --hidden-dropout 0 --attention-dropout 0
