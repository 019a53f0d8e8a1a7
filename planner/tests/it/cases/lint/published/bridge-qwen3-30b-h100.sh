# source: NVIDIA-NeMo/Megatron-Bridge, performance summary 26.04.01 (traces/reference, mb_26.04.01_qwen3_30b_a3b_h100_16_fp8_pt_l248)
# model: models/qwen3-30b-a3b
# cluster: h100
# gpus: 16
python pretrain_gpt.py \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
    --expert-model-parallel-size 16 --expert-tensor-parallel-size 1 --num-experts 128 --moe-router-topk 8 \
    --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep --moe-grouped-gemm \
    --num-layers 48 --hidden-size 2048 --num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128 --swiglu \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 1024 \
    --bf16 --fp8-format hybrid --fp8-recipe tensorwise --grad-reduce-in-bf16 \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --cross-entropy-loss-fusion --hidden-dropout 0 --attention-dropout 0
