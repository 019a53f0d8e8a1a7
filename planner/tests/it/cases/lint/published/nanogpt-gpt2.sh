# source: karpathy/nanoGPT, config/train_gpt2.py: GPT-2 of 124M parameters on 8 A100 of 40 GB, the vocabulary padded to 50,304
# model: models/gpt2
# cluster: a100-40gb
# gpus: 8
python pretrain_gpt.py \
    --num-layers 12 --hidden-size 768 --num-attention-heads 12 \
    --seq-length 1024 --micro-batch-size 12 --global-batch-size 480 --bf16 \
    --overlap-grad-reduce --hidden-dropout 0 --attention-dropout 0
