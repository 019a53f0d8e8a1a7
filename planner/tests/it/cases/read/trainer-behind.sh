# A launcher of the user's own, after which `accelerate launch` has its flags.
python mason.py --cluster here --num_nodes 1 --gpus 8 -- accelerate launch \
    --mixed_precision bf16 --num_processes 8 --use_deepspeed --zero_stage 2 \
    finetune.py --max_seq_length 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \
    --peft_scheme lora
