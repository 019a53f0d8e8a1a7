torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
    --ffn-hidden-size 14336 --group-query-attention --num-query-groups 8 --num-experts 8 --moe-router-topk 2 \
    --expert-model-parallel-size 4 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \
    --global-batch-size 32 --bf16 --swiglu --normalization RMSNorm --disable-bias-linear \
    --untie-embeddings-and-output-weights --position-embedding-type rope --rotary-base 1000000 \
    --attention-dropout 0 --hidden-dropout 0 --moe-token-dispatcher-type alltoall_seq
