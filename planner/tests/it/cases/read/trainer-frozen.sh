torchrun --nproc_per_node 8 internvl_chat_finetune.py --per_device_train_batch_size 4 --bf16 True --max_seq_length 8192 \
    --grad_checkpoint True --freeze_llm True --freeze_backbone True --freeze_mlp False
