#!/bin/bash
# The folder of a file is not known, its name is; the loop ends with the first run that succeeds.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cat > ds.json <<EOF
{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}
EOF
MODEL=llama-7b
if [ -z "$BATCH" ]; then
    BATCH=4
    ROUNDS=8
fi
[[ $MODEL == *-7b ]] && LENGTH=$((BATCH * 512))
IFS=, read -ra GPUS <<< "0,1,2,3"
run() {
    for try in $(seq 5); do
        torchrun --nproc_per_node ${#GPUS[@]} x.py --deepspeed $HERE/ds.json --bf16 --model_name_or_path ${MODEL%%-*} \
            --per_device_train_batch_size $BATCH --gradient_accumulation_steps $ROUNDS "$@" && break
    done
}
run --model_max_length $LENGTH
