chmod +x pretrain_gpt.py
pkill -f pretrain_gpt.py
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 32 --hidden-size 4096 \
    --num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu \
    --normalization RMSNorm --position-embedding-type rope --disable-bias-linear \
    --untie-embeddings-and-output-weights --seq-length 4096 --max-position-embeddings 8192 --rotary-base 500000 \
    --micro-batch-size 1 --global-batch-size 64 --bf16 --attention-dropout 0
