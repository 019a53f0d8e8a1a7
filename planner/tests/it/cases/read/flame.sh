cat > small.toml <<END
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 8192
tensor_parallel_degree = 2
data_parallel_shard_degree = -1
END
torchrun --nproc_per_node 8 -m flame.train --job.config_file small.toml --training.batch_size 1
