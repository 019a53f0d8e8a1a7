#!/bin/bash
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft --max_len 2048 --train_batch_size 256
EOF
deepspeed --module $training_commands
