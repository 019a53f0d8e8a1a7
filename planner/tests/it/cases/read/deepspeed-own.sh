cat > ds.json <<EOF
{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true}}
EOF
torchrun --nproc_per_node 16 --nnodes 1 finetune.py --batch-size 2 --gradient-accumulation-steps 2 --max-length 512 \
    --gradient-checkpointing --deepspeed --deepspeed_config ds.json
