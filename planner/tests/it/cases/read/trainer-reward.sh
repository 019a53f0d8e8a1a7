torchrun --nproc_per_node 8 train_reward.py --per_device_train_batch_size 2 --bf16 --max_length 2048
