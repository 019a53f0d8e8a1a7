# source: NVIDIA-NeMo/Megatron-Bridge, performance summary 26.04.01 (traces/reference, mb_26.04.01_llama3_70b_h100_64_fp8_pt_l207)
# model: models/llama-3.1-70b
# cluster: h100
# gpus: 64
python pretrain_gpt.py \
    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 8 \
    --num-virtual-stages-per-pipeline-rank 5 \
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention --num-query-groups 8 --swiglu \
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 256 \
    --bf16 --fp8-format hybrid --fp8-recipe tensorwise --grad-reduce-in-bf16 \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap \
    --cross-entropy-loss-fusion --hidden-dropout 0 --attention-dropout 0
