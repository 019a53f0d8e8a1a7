#!/bin/bash
#SBATCH <SLURM OPTIONS> --nodes=2 --exclusive --ntasks-per-node=8
SAVE="PATH TO SAVE MODEL CHECKPOINT"
run_cmd="python -u pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 32 --hidden-size 4096 \
    --num-attention-heads 32 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --fp16 \
    --load <PATH TO CHECKPOINTS DIRECTORY> --save ${SAVE} --optimizer ademamix"
eval $run_cmd
