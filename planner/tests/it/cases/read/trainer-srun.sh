srun --nodes=1 --ntasks=1 deepspeed --num_gpus 8 train.py --per_device_train_batch_size 1 --max_length 2048 --bf16
