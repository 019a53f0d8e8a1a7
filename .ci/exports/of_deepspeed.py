"""DeepSpeed's own configuration, held against a plan."""

import json
import os
from unittest import mock

import try_deepspeed  # before DeepSpeed: it says what the device is
import deepspeed.runtime.config as runtime
from deepspeed.runtime.config import DeepSpeedConfig

from plans import equal, need, script_arguments

# What DeepSpeed ignores it ignores without a word: these are the keys that its configuration reads.
KEYS = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "bf16",
    "fp16",
    "data_types",
    "zero_optimization",
    "tensor_parallel",
    "sequence_parallel_size",
    "activation_checkpointing",
    "optimizer",
    "gradient_clipping",
}


class Ranks:
    """What tells DeepSpeed how many replicas there are."""

    def __init__(self, layout):
        self.layout = layout

    def get_data_parallel_world_size(self):
        return self.layout["data_parallel"]

    def get_sequence_parallel_world_size(self):
        return self.layout["context_parallel"]


def check(plan, folder):
    command, environment = script_arguments(folder / "deepspeed.sh", "torchrun")
    need("train.py" in command, "the script starts a program")
    given = json.loads((folder / "ds_config.json").read_text())
    unknown = sorted(set(given) - KEYS)
    equal("keys that DeepSpeed would ignore", unknown, [])
    os.environ["WORLD_SIZE"] = str(plan["num_gpus"])
    layout, training = plan["layout"], plan["training"]
    with mock.patch.object(runtime.dist, "get_rank", lambda: 0):
        config = DeepSpeedConfig(given, mpu=Ranks(layout))
    equal("batch", config.train_batch_size, training["global_batch_size"])
    equal("micro-batch", config.train_micro_batch_size_per_gpu, layout["micro_batch_size"])
    equal("micro-batches", config.gradient_accumulation_steps, layout["num_micro_batches"])
    equal("ZeRO", config.zero_optimization_stage, layout["zero_stage"])
    equal("bf16", bool(config.bfloat16_config.enabled), training["precision"] in ("bf16", "fp8"))
    equal("fp16", bool(config.float16_config.enabled), training["precision"] == "fp16")
    equal("tensor parallelism", given.get("tensor_parallel", {}).get("autotp_size", 1), layout["tensor_parallel"])
    scope = check_pipeline(plan, folder) if layout["pipeline_parallel"] > 1 else {}
    try_deepspeed.attempt(plan, given, scope)


def check_pipeline(plan, folder):
    scope = {}
    text = (folder / "pipeline.py").read_text()
    exec(compile(text, "pipeline.py", "exec"), scope)
    ends = [0]
    for stage in plan["stages"]:
        ends.append(ends[-1] + stage["num_blocks"])
    equal("stages", scope["STAGES"], ends)
    # The class cuts as it says, without a process group.
    pipeline = scope["PlannedPipeline"].__new__(scope["PlannedPipeline"])
    for rank in range(len(ends) - 1):
        seen = {}
        coordinate = type("Coordinate", (), {"pipe": rank})
        pipeline.__dict__["_topo"] = type("Topology", (), {"get_coord": lambda self, _: coordinate})()
        pipeline.__dict__["global_rank"] = rank
        pipeline.__dict__["_set_bounds"] = lambda start, stop, seen=seen: seen.update(start=start, stop=stop)
        scope["PlannedPipeline"]._partition_layers(pipeline)
        equal(f"stage {rank}", [seen["start"], seen["stop"]], ends[rank : rank + 2])
    return scope
