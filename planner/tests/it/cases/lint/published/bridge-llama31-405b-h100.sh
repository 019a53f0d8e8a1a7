# source: NVIDIA-NeMo/Megatron-Bridge, performance summary 26.06 (traces/reference, mb_26.06_llama31_405b_h100_1024_fp8_pt_l106)
# model: models/llama-3.1-405b
# cluster: h100
# gpus: 1024
python pretrain_gpt.py \
    --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 8 \
    --context-parallel-size 2 --num-virtual-stages-per-pipeline-rank 8 \
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split \
    --num-layers 126 --hidden-size 16384 --ffn-hidden-size 53248 --num-attention-heads 128 --group-query-attention --num-query-groups 8 --swiglu \
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 1536 \
    --bf16 --fp8-format hybrid --fp8-recipe tensorwise --grad-reduce-in-bf16 \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap \
    --cross-entropy-loss-fusion --hidden-dropout 0 --attention-dropout 0
