deepspeed --num_gpus 8 main.py --per_device_train_batch_size 2 --max_seq_len 2048 --zero_stage $2 --deepspeed
