NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-7B --train_type lora --torch_dtype float16 --max_length 2048 \
    --quant_bits 8 --target_regex '.*proj' --freeze_parameters_regex '.*norm.*' --lora_rank 8
