torchrun --nproc_per_node 8 tools/run_text_generation_server.py --tensor-model-parallel-size 8 --num-layers 32 \
  --pipeline-model-parallel-size 1 --hidden-size 4096 --num-attention-heads 32 --max-position-embeddings 4096 \
  --tokenizer-type NullTokenizer --bf16 --micro-batch-size 1 --seq-length 4096 --load c --seed 1
