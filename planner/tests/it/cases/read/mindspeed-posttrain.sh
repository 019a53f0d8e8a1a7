torchrun --nproc_per_node 8 posttrain_gpt.py --stage sft --lora-r 16 --tensor-model-parallel-size 1
