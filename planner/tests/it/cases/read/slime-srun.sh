srun --nodes=1 --ntasks=1 python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 \
    --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 --attention-dropout 0.0 --hidden-dropout 0.0
