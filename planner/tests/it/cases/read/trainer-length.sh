torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 2 --bf16 --max_seq_len 2048
