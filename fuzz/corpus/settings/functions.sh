#!/bin/bash
#SBATCH -N 2
#SBATCH --gpus-per-node=8
N=2
(( N > 1 )) && TP=4 || TP=2
(cd /tmp; N=3)
train() {
    local SIZE=$1; shift
    OPTIONS=(--micro-batch-size "$SIZE" --bf16)
    [ -n "$MORE" ] && OPTIONS+=(--swiglu)
    srun -N 2 bash -c 'torchrun --nproc-per-node 8 pretrain_gpt.py --seq-length 1024 --global-batch-size 32 "$@"' x "${OPTIONS[@]}"
}
train 1
