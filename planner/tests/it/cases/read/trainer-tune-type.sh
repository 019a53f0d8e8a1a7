deepspeed --num_gpus 4 tinyllava/train/train.py --fp16 True \
    --training_recipe lora --tune_type_llm lora --tune_type_connector full --lora_r 128 --lora_alpha 256 \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 4 --model_max_length 2048 --gradient_checkpointing True
