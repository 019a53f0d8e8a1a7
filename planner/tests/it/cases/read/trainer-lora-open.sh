torchrun --nproc_per_node 8 train.py \
    --lora_rank 64 --lora_alpha 128 \
    --max_seq_length 2048 --bf16 true --fsdp full_shard \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 8
