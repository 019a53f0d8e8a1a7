#!/bin/bash
# Usage: megatron-nested.sh LEARNING_RATE [TENSOR_PARALLEL]
RATE=$1
TENSOR=${2:-2}
PARTS=""
for part in $(seq 1 400); do
    PARTS="$PARTS 0.0025 /data/a-mixture-of-many-files-with-long-names/part-$part-of-400_text_document"
done
ARGS=(
    --tensor-model-parallel-size $TENSOR --micro-batch-size 2 --global-batch-size 64
    --seq-length 4096 --bf16 --lr $RATE --data-path $PARTS
)
ARGS+=(--hidden-dropout 0 --attention-dropout 0 --use-embed-layernorms)
run() {
    shift
    "$@"
}
run once srun --nodes 2 sh -c 'exec torchrun --nnodes 2 --nproc-per-node 8 "$@"' node pretrain_gpt.py "${ARGS[@]}"
