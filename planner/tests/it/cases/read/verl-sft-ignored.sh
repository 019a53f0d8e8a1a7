torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_files=a \
    data.max_length=2048 model.partial_pretrain=x data.micro_batch_size=8
