# Two nodes; the older name of `tuner_type`; a file that ms-swift brings along.
each=4
NNODES=2 NPROC_PER_NODE=$each \
swift sft \
    --model Qwen/Qwen2.5-32B \
    --train_type full \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps $(expr 16 / $each) \
    --max_length 8192 \
    --packing true \
    --deepspeed zero3 \
    --use_liger_kernel true
