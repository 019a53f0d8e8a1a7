#!/bin/bash
# Branches as launch scripts have them: on what is known they are followed.
GPUS_PER_NODE=8
NODES=${NODES:-2}
MODEL_SIZE=${MODEL_SIZE:-8b}
DTYPE=${DTYPE:-bf16}
RECOMPUTE=${RECOMPUTE:-none}
case $MODEL_SIZE in
    8b) TP=2 ;;
    70b | 72b)
        TP=8
        ;;
    *) echo "no such model" && exit 1 ;;
esac
PRECISION=(--bf16)
if [[ "$DTYPE" == "fp8" ]]; then
    PRECISION+=("--fp8-format hybrid")
fi
if [ $RECOMPUTE = full ]; then
    recompute="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
elif [ $RECOMPUTE = selective ]; then
    recompute="--recompute-granularity selective"
fi
[ "$TP" -gt 1 ] && parallel="--sequence-parallel" || parallel=""
if [ ! -f pretrain_gpt.py ]; then
    echo "run this from the root of Megatron-LM"
    exit 1
fi
main() {
    local batch=$1
    torchrun --nnodes $NODES --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py \
        --tensor-model-parallel-size $TP $parallel ${PRECISION[@]} $recompute \
        --micro-batch-size 1 --global-batch-size $batch --seq-length 4096
}
main 64
