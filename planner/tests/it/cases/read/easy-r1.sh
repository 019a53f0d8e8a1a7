#!/bin/bash
MODEL_PATH=Qwen/Qwen2.5-7B-Instruct
python3 -m verl.trainer.main \
    config=examples/easy-r1.yaml \
    worker.actor.model.model_path=${MODEL_PATH} \
    worker.actor.fsdp.torch_dtype=bf16 \
    worker.actor.optim.strategy=adamw_bf16 \
    worker.actor.micro_batch_size_per_device_for_update=2 \
    worker.actor.model.lora.rank=16 \
    worker.actor.fsdp.fsdp_size=4 \
    trainer.experiment_name=qwen2_5_7b_math_grpo
