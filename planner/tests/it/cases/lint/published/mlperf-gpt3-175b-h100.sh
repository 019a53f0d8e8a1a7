# source: MLPerf Training v3.0, NVIDIA, dgxh100_n64 (traces/reference, mlperf_v3.0_NVIDIA_dgxh100_n64_nemo)
# model: models/gpt3-175b.json
# cluster: h100
# gpus: 512
python pretrain_gpt.py \
    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 8 \
    --num-virtual-stages-per-pipeline-rank 12 \
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
    --seq-length 2048 --micro-batch-size 1 --global-batch-size 2048 \
    --bf16 --fp8-format hybrid --fp8-recipe delayed --grad-reduce-in-bf16 \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap \
    --hidden-dropout 0 --attention-dropout 0
