# A program of the user's own with ms-swift's options; more ranks than key-value heads share a sequence.
torchrun --nproc_per_node 8 my_sft.py \
    --model Qwen/Qwen2.5-7B-Instruct \
    --tuner_type lora_llm \
    --target_modules self_attn.q_proj self_attn.v_proj \
    --lora_rank 16 \
    --max_length 32768 \
    --sequence_parallel_size 8
