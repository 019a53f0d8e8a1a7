#!/bin/bash
# BigScience's evaluation of a checkpoint of Megatron-DeepSpeed: the options of the model, of no training.
deepspeed --num_gpus 8 tasks/eval_harness/evaluate.py \
    --load checkpoints/7b --results_path 7b.json --tensor-model-parallel-size 1 --pipeline-model-parallel-size 8 \
    --vocab-file vocab.json --merge-file merges.txt --micro-batch-size 4 --no-load-optim --no-load-rng --bf16 \
    --inference --seq-length 2048 --task_list arc_easy,piqa --deepspeed --deepspeed_config deepspeed-bfloat16.json
