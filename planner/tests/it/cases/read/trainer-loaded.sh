torchrun --nproc_per_node 8 run_sft.py --model_name_or_path meta-llama/Llama-3.1-8B --torch_dtype bfloat16 --bf16 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --max_length 2048 --gradient_checkpointing true
