"""Megatron-Bridge's own configuration, validated and held against a plan."""

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import types

# What it imports unconditionally and a configuration does not need.
ABSENT = ["transformer_engine", "transformer_engine_torch", "megatron.energon", "omegaconf"]


class Anything(type):
    """A class whose every attribute is another."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return anything(name)


def anything(name):
    members = {"__init__": lambda self, *_, **__: None, "__class_getitem__": classmethod(lambda cls, _: cls)}
    return Anything(name, (), members)


class Module(types.ModuleType):
    """A module that has every name, as an empty class."""

    __path__ = []

    def __getattr__(self, name):
        if name == "__version__":
            return "2.8.0"
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, anything(name))
        return getattr(self, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is absent."""

    def find_spec(self, name, path=None, target=None):
        if any(name == absent or name.startswith(absent + ".") for absent in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
logging.disable(logging.WARNING)

import megatron.bridge  # noqa: E402,F401 (imported once, before checks fork)
import megatron.bridge.training.config  # noqa: E402,F401
from megatron.core import utils  # noqa: E402

from of_megatron import pretend_gpus  # noqa: E402
from plans import equal, layers_of_stages, script_arguments  # noqa: E402


class FusedAdam:
    """Transformer Engine's, as far as its arguments are asked for."""

    def __init__(self, master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_decoupled_grad):
        pass


def check(plan, folder):
    importlib.import_module("transformer_engine.pytorch.optimizers").FusedAdam = FusedAdam
    command, environment = script_arguments(folder / "megatron-bridge.sh", "torchrun")
    script = next(word for word in command if word.endswith("planned.py"))
    pretend_gpus(plan)
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(environment)
    os.environ.update(WORLD_SIZE=str(plan["num_gpus"]), RANK="0")
    for module in (utils, *sys.modules.values()):
        # Versions alone: nothing of Transformer Engine runs.
        if getattr(module, "__name__", "").startswith("megatron") and "is_te_min_version" in vars(module):
            module.is_te_min_version = lambda *_, **__: True
    spec = importlib.util.spec_from_file_location("planned", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.planned()
    for name in set(vars(config)) & {"model", "ddp", "optimizer", "train", "dist", "checkpoint", "mixed_precision"}:
        part = getattr(config, name)
        known = set(getattr(type(part), "__dataclass_fields__", {}))
        # A setting whose name nobody reads is one that is lost.
        strangers = sorted(key for key in vars(part) if key not in known and not key.startswith("_"))
        own = set(vars(type(config.model)())) if name == "model" and not known else set()
        equal(f"settings of {name} that are no fields", [key for key in strangers if key not in own], [])
    config.mixed_precision.setup(config.model, config.optimizer, config.ddp)
    config.validate()

    layout, training, model = plan["layout"], plan["training"], config.model
    equal("tensor parallelism", model.tensor_model_parallel_size, layout["tensor_parallel"])
    equal("sequence parallelism", bool(model.sequence_parallel), layout["sequence_parallel"])
    equal("context parallelism", model.context_parallel_size, layout["context_parallel"])
    equal("pipeline parallelism", model.pipeline_model_parallel_size, layout["pipeline_parallel"])
    equal("stages of a rank", model.virtual_pipeline_model_parallel_size or 1, layout["virtual_stages"])
    equal("data parallelism", config.data_parallel_size, layout["data_parallel"])
    if getattr(model, "num_moe_experts", None):
        equal("expert parallelism", model.expert_model_parallel_size, layout["expert_parallel"])
        equal("experts are cut", model.expert_tensor_parallel_size, layout["expert_tensor_parallel"])
    equal("micro-batch", config.train.micro_batch_size, layout["micro_batch_size"])
    equal("batch", config.train.global_batch_size, training["global_batch_size"])
    equal("sequence length", model.seq_length, training["sequence_length"])
    equal("bf16", bool(model.bf16), training["precision"] in ("bf16", "fp8", "fp4"))
    equal("fp16", bool(model.fp16), training["precision"] == "fp16")
    if training["precision"] != "fp32":
        equal("sums in fp32", bool(config.ddp.grad_reduce_in_fp32), training["fp32_gradients"])
    shards = layout["zero_stage"] > 0
    equal("the optimizer is sharded", bool(config.ddp.use_distributed_optimizer), shards)
    description = plan["model"]["description"]
    equal("layers", model.num_layers, description["num_hidden_layers"])
    equal("width", model.hidden_size, description["hidden_size"])
    if layout["pipeline_parallel"] > 1:
        check_layers(plan, model)


def check_layers(plan, model):
    from megatron.core import parallel_state
    from megatron.core.transformer import transformer_block

    stages, pipeline = plan["layout"]["virtual_stages"], plan["layout"]["pipeline_parallel"]
    layers = layers_of_stages(plan)
    if stages > 1:
        parallel_state.set_virtual_pipeline_model_parallel_world_size(stages)
    for rank in range(pipeline):
        # In the place of a process group.
        parallel_state.set_pipeline_model_parallel_rank(rank)
        for chunk in range(stages):
            count = transformer_block.get_num_layers_to_build(
                model, vp_stage=chunk if stages > 1 else None, pp_rank=rank
            )
            equal(f"layers of stage {chunk * pipeline + rank}", count, layers[chunk * pipeline + rank])
