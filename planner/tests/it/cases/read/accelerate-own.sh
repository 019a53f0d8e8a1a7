cat > accelerate.yaml <<EOF
distributed_type: DEEPSPEED
num_processes: 8
num_machines: 1
mixed_precision: bf16
deepspeed_config:
  zero_stage: 3
EOF
accelerate launch --config_file accelerate.yaml train.py --wandb x --batch-size 2 --gradient-accumulation-steps 4 \
    --seq-length 16000 --gradient-checkpointing --learning-rate 1e-5
