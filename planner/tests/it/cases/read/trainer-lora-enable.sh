torchrun --nproc_per_node 8 train_mem.py \
    --lora_enable True --lora_r 128 --lora_alpha 256 \
    --model_max_length 2048 \
    --bf16 True --bits 4 \
    --gradient_checkpointing 1 \
    --per_device_train_batch_size 16 \
    --vision_tower clip
