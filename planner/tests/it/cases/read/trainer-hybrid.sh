torchrun --nproc_per_node 8 --nnodes 4 train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 true \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --fsdp "hybrid_shard auto_wrap" \
    --model_max_length 4096
