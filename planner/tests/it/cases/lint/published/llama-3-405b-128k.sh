# source: Grattafiori et al. 2024, The Llama 3 Herd of Models (arXiv 2407.21783), table 4: 16,384 H100, sequences of 131,072; it does not say how many stages a rank has
# model: models/llama-3.1-405b
# cluster: h100
# gpus: 16384
python pretrain_gpt.py \
    --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 16 \
    --context-parallel-size 16 --cp-comm-type all_gather \
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split \
    --num-layers 126 --hidden-size 16384 --ffn-hidden-size 53248 --num-attention-heads 128 --group-query-attention --num-query-groups 8 --swiglu \
    --seq-length 131072 --micro-batch-size 1 --global-batch-size 128 \
    --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --cross-entropy-loss-fusion --hidden-dropout 0 --attention-dropout 0
