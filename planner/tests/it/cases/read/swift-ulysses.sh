# Ulysses of ms-swift's own, under DeepSpeed, over more ranks than there are key-value heads.
NPROC_PER_NODE=8 swift sft \
    --model Qwen/Qwen2.5-7B-Instruct \
    --tuner_type full \
    --torch_dtype bfloat16 \
    --max_length 65536 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 4 \
    --sequence_parallel_size 8 \
    --deepspeed zero3
