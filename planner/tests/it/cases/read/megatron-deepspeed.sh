#!/bin/bash
ZERO_STAGE=1
MICRO_BATCH=2
BATCH=256
CONFIG=./ds_config.$SLURM_JOB_ID.json
cat <<EOT > $CONFIG
{
  "train_micro_batch_size_per_gpu": $MICRO_BATCH,
  "train_batch_size": $BATCH,
  "zero_optimization": {"stage": $ZERO_STAGE},
  "bf16": {"enabled": true}
}
EOT
ARGS="--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 \
    --micro-batch-size $MICRO_BATCH --global-batch-size $BATCH --seq-length 2048 --bf16 \
    --hidden-dropout 0 --attention-dropout 0 --lr-decay-tokens 1000000 \
    --checkpoint-activations --partition-activations"
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node 8 --nnodes 8"
$LAUNCHER pretrain_gpt.py $ARGS --deepspeed --deepspeed_config $CONFIG --zero-stage $ZERO_STAGE --deepspeed-activation-checkpointing
