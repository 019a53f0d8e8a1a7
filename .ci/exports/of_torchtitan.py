"""torchtitan's own parser, its model, its mesh and PyTorch's schedules, held against a plan."""

import csv
import sys

import try_torchtitan  # before torchtitan: it says what the device is
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.schedules import _Action, get_schedule_class
from torchtitan.config import ConfigManager
from torchtitan.distributed.parallel_dims import ParallelDims
from torchtitan.models.common import config_utils  # noqa: F401 (imported once, before checks fork)

from plans import equal, layers_of_stages, need, script_arguments


def pretend_quantisation():
    """torchao is not installed: its converter changes nothing that is checked here."""
    import torchtitan.components.quantization as quantization

    class Converter:
        class Config:
            def __init__(self, **options):
                need("model_compile_enabled" in options, "the converter is told of the compiler")

            def build(self):
                return self

            def convert(self, config):
                return config

    quantization.Float8LinearConverter = Converter
    for name in ("llama3", "qwen3", "deepseek_v3", "gpt_oss"):
        module = __import__(f"torchtitan.models.{name}", fromlist=["model_registry"])
        if hasattr(module, "validate_converter_order"):
            module.validate_converter_order = lambda _: None


def check(plan, folder):
    command, environment = script_arguments(folder / "torchtitan.sh", "torchrun")
    place = command.index("torchtitan.train")
    layout, training = plan["layout"], plan["training"]
    sys.path.insert(0, environment["PYTHONPATH"].split(":")[0])
    if training["precision"] == "fp8":
        pretend_quantisation()
    config = ConfigManager().parse_args(command[place + 1 :])
    parallelism, world = config.parallelism, plan["num_gpus"]
    dims = ParallelDims.from_config(parallelism, world)
    equal("tensor parallelism", dims.tp, layout["tensor_parallel"])
    equal("pipeline parallelism", dims.pp, layout["pipeline_parallel"])
    equal("context parallelism", dims.cp, layout["context_parallel"])
    equal("data parallelism", dims.dp_replicate * dims.dp_shard, layout["data_parallel"])
    if layout["zero_stage"] > 0:
        equal("shards", dims.dp_shard * dims.cp, layout["zero_shard"])
    if layout["tensor_parallel"] > 1:
        equal("sequence parallelism", parallelism.enable_sequence_parallel, layout["sequence_parallel"])
    # What the parser lets pass: experts that do not divide, and batches.
    equal("expert parallelism", dims.ep, layout["expert_parallel"])
    need((dims.dp_shard * dims.cp * dims.tp) % dims.ep == 0, "experts do not divide their ranks")
    equal("sequence length", config.training.seq_len, training["sequence_length"])
    equal("global batch", config.training.global_batch_size, training["global_batch_size"])
    each = config.training.local_batch_size * layout["data_parallel"]
    need(training["global_batch_size"] % each == 0, "the batch is no number of local ones")
    need(config.training.disable_cuda_graphs, "CUDA graphs are on")
    policy = type(config.activation_checkpoint).__qualname__.split(".")[0]
    expected = {"none": "NoneType", "full": "FullAC"}.get(layout["recompute"], "SelectiveAC")
    equal("recompute", policy, expected)
    check_model(plan, config)
    if layout["pipeline_parallel"] > 1:
        check_pipeline(plan, config, folder)
    try_torchtitan.attempt(plan, config)


def check_model(plan, config):
    model = config.model_spec.model
    description = plan["model"]["description"]
    equal("layers", len(model.layers), description["num_hidden_layers"])
    equal("width", model.dim, description["hidden_size"])
    equal("vocabulary", model.vocab_size, description["vocab_size"])


def check_pipeline(plan, config, folder):
    layout = plan["layout"]
    parts = config.parallelism.module_fqns_per_model_part
    counts = [sum(name.startswith("layers.") for name in part) for part in parts]
    equal("layers of stages", counts, layers_of_stages(plan))
    names = [name for part in parts for name in part]
    layers = [f"layers.{layer}" for layer in range(sum(counts))]
    equal("modules", names, ["tok_embeddings", *layers, "norm", "lm_head"])
    kind = get_schedule_class(config.parallelism.pipeline_parallel_schedule)
    each = config.parallelism.pipeline_parallel_microbatch_size
    micro_batches = config.training.local_batch_size // each
    equal("micro-batches", micro_batches, layout["num_micro_batches"])
    is_multi = issubclass(kind, schedules.PipelineScheduleMulti)
    stages = len(parts)
    ranks = layout["pipeline_parallel"]
    need(is_multi == (stages > ranks), f"{kind.__name__} with {stages} stages on {ranks} ranks")
    order = {}
    with (folder / "schedule.csv").open() as lines:
        for rank, row in enumerate(csv.reader(lines)):
            actions = [_Action.from_str(word) if word else None for word in row]
            # Two that overlap are one after the other, as far as this goes.
            order[rank] = [
                part
                for action in actions
                for part in ((action and getattr(action, "sub_actions", None)) or [action])
            ]
    schedules._validate_schedule(order, ranks, stages, micro_batches)
    of_stage = {
        action.stage_index: rank
        for rank, actions in order.items()
        for action in actions
        if action is not None and action.stage_index >= 0
    }
    with_messages = schedules._add_send_recv(order, of_stage.__getitem__, stages)
    schedules._simulate_comms_compute(with_messages, of_stage.__getitem__, stages)
