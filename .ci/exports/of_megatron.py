"""Megatron-LM's own parser, checks, rank grid and layers of stages, held against a plan."""

import logging
import os
import sys

import torch
from megatron.core import parallel_state
from megatron.training import argument_utils, arguments

import try_megatron
from plans import equal, groups_of, layers_of_stages, need, script_arguments

logging.disable(logging.WARNING)

# What Transformer Engine would do, which is not installed; an export never says this.
WITHOUT_TRANSFORMER_ENGINE = ["--no-rope-fusion"]
OWN_MODULES = ["--transformer-impl", "local"]

# What the parser takes with Transformer Engine alone; it is tried without.
WITH_TRANSFORMER_ENGINE = "--fine-grained-activation-offloading"


def pretend_gpus(plan):
    """GPUs of the plan's kind, as far as the parser asks for them."""
    blackwell = plan["cluster"]["gpu"]["architecture"] == "blackwell"
    capability = (10, 0) if blackwell else (9, 0)
    torch.cuda.get_device_capability = lambda *_: capability
    torch.cuda.get_device_properties = lambda *_: type(
        "Properties", (), {"major": capability[0], "minor": 0, "multi_processor_count": 132}
    )()


def check(plan, folder):
    command, environment = script_arguments(folder / "megatron.sh", "torchrun")
    place = command.index("pretrain_gpt.py")
    world = plan["num_gpus"]
    layout = plan["layout"]
    launched = dict(zip(command[:place:2], command[1:place:2]))
    ranks = int(launched["--nnodes"]) * int(launched["--nproc-per-node"])
    equal("ranks that are started", ranks, world)

    pretend_gpus(plan)
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(environment)
    os.environ.update(WORLD_SIZE=str(world), RANK="0")
    flags = command[place + 1 :]
    given = [flag for flag in flags if flag.startswith("--")]
    equal("flags that are given twice", sorted({it for it in given if given.count(it) > 1}), [])
    needs_it = WITH_TRANSFORMER_ENGINE in flags
    own_modules = [] if needs_it else OWN_MODULES
    sys.argv = ["pretrain_gpt.py", *flags, *WITHOUT_TRANSFORMER_ENGINE, *own_modules]
    if needs_it or layout["recompute"].startswith("full") or plan["training"]["precision"] in ("fp8", "fp4"):
        pretend_transformer_engine()
    args = arguments.parse_args()
    arguments.validate_args(args)
    config = argument_utils.core_transformer_config_from_args(args)

    equal("data parallelism", args.data_parallel_size, layout["data_parallel"])
    micro_batches = args.global_batch_size // args.micro_batch_size // args.data_parallel_size
    equal("micro-batches", micro_batches, layout["num_micro_batches"])
    equal("sequence parallelism", args.sequence_parallel, layout["sequence_parallel"])
    stages = args.virtual_pipeline_model_parallel_size or 1
    equal("stages of a rank", stages, layout["virtual_stages"])
    check_grid(plan, args)
    check_layers(plan, args, config)
    check_model(plan, args)
    try_megatron.attempt(plan, args)


def pretend_transformer_engine():
    """Versions alone: nothing of it runs."""
    from megatron.core import utils

    for module in (arguments, utils, sys.modules["megatron.core.transformer.transformer_config"]):
        if hasattr(module, "is_te_min_version"):
            module.is_te_min_version = lambda *_, **__: True


def check_grid(plan, args):
    world = plan["num_gpus"]
    expected = groups_of(plan)
    instances = args.num_distributed_optimizer_instances
    for rank in sorted({0, 1 % world, world // 2, world - 1}):
        try_megatron.make_groups(args, world, rank)
        ranks_of = torch.distributed.get_process_group_ranks
        actual = {
            "tensor": parallel_state.get_tensor_model_parallel_group(),
            "context": parallel_state.get_context_parallel_group(),
            "data": parallel_state.get_data_parallel_group(),
            "replicas": parallel_state.get_data_parallel_group(with_context_parallel=True),
            "pipeline": parallel_state.get_pipeline_model_parallel_group(),
        }
        if args.num_experts:
            actual["expert"] = parallel_state.get_expert_model_parallel_group()
            actual["expert tensor"] = parallel_state.get_expert_tensor_parallel_group()
        if instances > 1:
            actual["shard"] = parallel_state.get_data_parallel_group(
                with_context_parallel=True, partial_data_parallel=True
            )
        for name, group in actual.items():
            mine = next(group for group in expected[name] if rank in group)
            equal(f"the {name} group of rank {rank}", sorted(ranks_of(group)), mine)
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def check_layers(plan, args, config):
    from megatron.core.transformer import transformer_block

    pipeline = plan["layout"]["pipeline_parallel"]
    stages = plan["layout"]["virtual_stages"]
    if pipeline == 1:
        return
    world = plan["num_gpus"]
    layers = layers_of_stages(plan)
    for rank in range(pipeline):
        try_megatron.make_groups(args, world, rank * world // pipeline)
        for chunk in range(stages):
            count = transformer_block.get_num_layers_to_build(
                config, vp_stage=chunk if stages > 1 else None, pp_rank=rank
            )
            equal(f"layers of stage {chunk * pipeline + rank}", count, layers[chunk * pipeline + rank])
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def check_model(plan, args):
    """What the parser lets pass: a mixture with tensor parallelism takes sequence parallelism."""
    if args.num_experts and args.tensor_model_parallel_size > 1:
        need(args.sequence_parallel, "experts with tensor parallelism take --sequence-parallel")
    description = plan["model"]["description"]
    if "num_hidden_layers" in description:
        equal("layers", args.num_layers, description["num_hidden_layers"])
    if "hidden_size" in description:
        equal("hidden size", args.hidden_size, description["hidden_size"])
    equal("sequence length", args.seq_length, plan["training"]["sequence_length"])
