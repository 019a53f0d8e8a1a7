FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train \
    --model_name_or_path Qwen/Qwen2.5-7B --stage sft --do_train --finetuning_type lora --template qwen \
    --cutoff_len 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --bf16 true --deepspeed null
