read -r -d '' cmds <<EOF
openrlhf.cli.train_rm --train_batch_size 256 --micro_train_batch_size 1 --zero_stage 3
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --module $cmds
fi
