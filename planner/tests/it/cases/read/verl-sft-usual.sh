torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_files=a \
    model.partial_pretrain=x data.micro_batch_size_per_gpu=4
