torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
    --ffn-hidden-size 11008 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \
    --global-batch-size 32 --bf16 --swiglu --attention-dropout 0 --hidden-dropout 0 \
    --checkpoint-activations
