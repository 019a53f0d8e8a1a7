python qlora.py --model_name_or_path llama-2-70b --bits 4 --quant_type nf4 --lora_r 64 --lora_alpha 16 \
  --lora_modules all --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --bf16 \
  --use_gradient_checkpointing True --max_seq_length 2048
