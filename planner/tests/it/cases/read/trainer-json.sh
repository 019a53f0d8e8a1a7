torchrun --nproc_per_node 8 --nnodes 2 train.py --fsdp 'hybrid_shard auto_wrap' \
    --fsdp_config '{"version": 1, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}' \
    --per_device_train_batch_size 1 --max_length 2048 --bf16 --gradient_checkpointing true
