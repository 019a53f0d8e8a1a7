torchrun --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=256 \
    data.micro_batch_size_per_gpu=4 data.max_length=1024 ulysses_sequence_parallel_size=2 \
    use_remove_padding=true
