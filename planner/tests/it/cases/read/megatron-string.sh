#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | cut -d '(' -f 1 | head -n 1)
LAUNCHER="torchrun --nproc_per_node $SLURM_GPUS_PER_NODE --nnodes $SLURM_NNODES --rdzv_endpoint $HOST:6000"
ARGS="
    --tensor-model-parallel-size 4 --sequence-parallel
    --save $HOME/checkpoints/$USER --pipeline-model-parallel-size 2
    --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16
    --hidden-dropout 0 --attention-dropout 0
    --lr ${LEARNING_RATE} --use-distributed-optimizer
"
if [ -n "$WANDB_API_KEY" ]; then
    ARGS="$ARGS --wandb-project ours --wandb-exp-name $USER"
fi
CMD="pretrain_gpt.py $ARGS"
echo $LAUNCHER $CMD
srun $LAUNCHER $CMD
