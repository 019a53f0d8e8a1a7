deepspeed --num_gpus 8 train_mem.py --pretrain_mm_mlp_adapter x/mm_projector.bin --bf16 True \
    --per_device_train_batch_size 16 --model_max_length 2048 --gradient_checkpointing True
