NPROC_PER_NODE=8 srun --ntasks=1 swift sft --model Qwen/Qwen2.5-7B --train_type full \
    --per_device_train_batch_size 1 --max_length 2048
