#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
torchrun --nnodes 2 --nproc_per_node 4 finetune.py --tensor_model_parallel_size 4 --pipeline_model_parallel_size 1 \
  --micro_batch_size 1 --global_batch_size 64 --seq_length 4096 --num_layers 32 --hidden_size 4096 \
  --ffn_hidden_size 11008 --num_attention_heads 32 --swiglu --bf16 --use_distributed_optimizer --sequence_parallel \
  --hidden_dropout 0 --attention_dropout 0 --lr 2e-5 --train_iters 100 --loss_role_scale 0.5 --wandb_entities me
