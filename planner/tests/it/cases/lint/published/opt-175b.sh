# source: Zhang et al. 2022, OPT (arXiv 2205.01068), section 2.4: fully sharded data parallelism with tensor parallelism on 992 A100
# model: models/gpt3-175b.json
# cluster: a100
# gpus: 992
python pretrain_gpt.py \
    --tensor-model-parallel-size 8 \
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
    --seq-length 2048 --micro-batch-size 8 --global-batch-size 992 --fp16 \
    --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params \
    --ckpt-format fsdp_dtensor --no-gradient-accumulation-fusion \
    --overlap-grad-reduce --overlap-param-gather \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --hidden-dropout 0.1 --attention-dropout 0.1
