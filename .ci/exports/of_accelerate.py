"""accelerate's own parsers, held against a plan."""

import dataclasses
import os

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin, TorchContextParallelConfig, prepare_multi_gpu_env

import try_accelerate
from plans import equal, need, script_arguments

NAME = "accelerate"


def check(plan, folder, name=NAME):
    command, _ = script_arguments(folder / f"{name}.sh", "accelerate")
    equal("the command", command[0], "launch")
    args = launch_command_parser().parse_args(command[1:])
    need(args.config_file and os.path.exists(args.config_file), "the configuration lies where it is named")
    config = load_config_from_file(args.config_file)
    layout, training = plan["layout"], plan["training"]
    equal("ranks", config.num_processes, plan["num_gpus"])
    known = set(FullyShardedDataParallelPlugin.__dataclass_fields__)
    for key in getattr(config, "fsdp_config", None) or {}:
        # What it ignores it ignores without a word.
        plain = key.removeprefix("fsdp_")
        need(plain in known or key in known or plain == "offload_params", f"fsdp_config ignores `{key}`")
    args, *_ = _validate_launch_command(args)
    if plan["num_gpus"] > 1:
        environment = prepare_multi_gpu_env(args)
        os.environ.update({key: value for key, value in environment.items() if isinstance(value, str)})
    equal("precision", config.mixed_precision, {"fp32": "no"}.get(training["precision"], training["precision"]))
    equal("micro-batches", int(args.gradient_accumulation_steps), layout["num_micro_batches"])
    sizes = {
        key.removeprefix("parallelism_config_"): value
        for key, value in config.parallelism_config.items()
    }
    # Its own class reads how a ring passes keys and values, from the environment.
    strategy = sizes.pop("cp_comm_strategy", None)
    equal("the ring", strategy, "alltoall" if layout["context_parallel"] > 1 else None)
    if strategy:
        TorchContextParallelConfig(cp_comm_strategy=strategy)
    fields = {field.name for field in dataclasses.fields(ParallelismConfig)}
    equal("unknown sizes", sorted(set(sizes) - fields), [])
    made = ParallelismConfig(**sizes)
    equal("the product of sizes", made.total_size, plan["num_gpus"])
    equal("tensor parallelism", made.tp_size, layout["tensor_parallel"])
    equal("context parallelism", made.cp_size * made.sp_size, layout["context_parallel"])
    equal("data parallelism", made.dp_replicate_size * made.dp_shard_size, layout["data_parallel"])
    if layout["zero_stage"] > 0:
        equal("shards", made.dp_shard_size * layout["context_parallel"], layout["zero_shard"])
        if plan["num_gpus"] > 1:
            reshards = config.fsdp_config["fsdp_reshard_after_forward"]
            equal("ZeRO", 3 if reshards else 2, layout["zero_stage"])
            full = config.fsdp_config["fsdp_activation_checkpointing"]
            equal("recompute", "full" if full else "none", layout["recompute"])
    if name == NAME:
        try_accelerate.attempt(plan)
