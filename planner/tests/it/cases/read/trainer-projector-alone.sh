deepspeed --num_gpus 8 train_mem.py --tune_mm_mlp_adapter True --freeze_audio_encoder_adapter True --bf16 True \
    --per_device_train_batch_size 32 --model_max_length 2048 --gradient_checkpointing True
