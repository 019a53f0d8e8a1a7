trl dpo --model_name_or_path x --dataset_name y --num_processes 8 --mixed_precision bf16 --per_device_train_batch_size 2 \
    --max_length 2048 --bf16
