# ms-swift's own settings of FSDP, by their name.
NPROC_PER_NODE=8 swift sft \
    --model Qwen/Qwen2.5-7B-Instruct \
    --tuner_type full \
    --gradient_checkpointing false \
    --max_length 8192 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 2 \
    --fsdp fsdp2
