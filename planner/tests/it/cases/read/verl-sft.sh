#!/bin/bash
python -m torch.distributed.run --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer \
    data.micro_batch_size=32 data.max_length=1024 model.partial_pretrain=Qwen/Qwen2.5-7B
