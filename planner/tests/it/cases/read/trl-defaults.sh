trl sft --config trl-defaults.yaml --num_processes 8
