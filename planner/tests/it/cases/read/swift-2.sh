NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model_type qwen2-7b-instruct --model_id_or_path qwen2-7b \
  --sft_type full --template_type AUTO --dtype AUTO --max_length 4096 --gradient_checkpointing true --batch_size 2 \
  --gradient_accumulation_steps 4 --deepspeed default-zero3
