#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py \
    --micro-batch-size 1 --global-batch-size 64 --seq-length 8192 --bf16 \
    --tensor-model-parallel-size 2 --use-distributed-optimizer \
    --hidden-dropout 0 --attention-dropout 0 \
    --rampup-batch-size 16 16 100000 --no-masked-softmax-fusion --ours-of-a-fork 3
