#!/bin/bash
# The device is asked for by a command unless it is set; what the branches on it set depends on it.
DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}
each=$((8))
LENGTHS=(data.max_prompt_length=1024 data.max_response_length=1024)
case "${DEVICE}" in
    gpu) each=8 ;;
    npu) each=16 ;;
    *) exit 1 ;;
esac
if [ "$DEVICE" = npu ]; then
    LENGTHS+=(actor_rollout_ref.actor.ppo_epochs=1)
fi
python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 trainer.n_gpus_per_node=$each "${LENGTHS[@]}"
