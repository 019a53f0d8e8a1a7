CUDA_VISIBLE_DEVICES=0,1 python train.py --model_name x --batch_size 2 --context_length 512 --train_type qlora
