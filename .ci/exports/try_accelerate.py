"""accelerate's own preparation of a model, tried for a plan without a GPU: its meshes, tensor parallelism of
transformers, FSDP2 or DDP, and a step where sequences are whole. The process group answers nothing. The model is of the
plan's kind with as many heads, but few and narrow layers, as its tensors have contents."""

import os
import tempfile

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType
from torch.distributed import init_process_group
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.models.llama import modeling_llama  # noqa: F401 (imported once, before checks fork)

from plans import apart, need, small_model


def attempt(plan):
    """Fails with what accelerate says where it refuses the plan."""
    apart(lambda: step(plan))


def step(plan):
    world, layout = plan["num_gpus"], plan["layout"]
    os.environ.update(WORLD_SIZE=str(world), RANK="0", LOCAL_RANK="0", MASTER_ADDR="n0", MASTER_PORT="1")
    # Where it would take a GPU.
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
    kind = DistributedType.MULTI_GPU if world > 1 else DistributedType.NO
    PartialState._prepare_backend = lambda *_, **__: ("fake" if world > 1 else None, kind)
    PartialState.set_device = lambda state: setattr(state, "device", torch.device("cpu"))
    torch.Tensor.pin_memory = lambda tensor: tensor
    if world > 1:
        init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    accelerator = Accelerator()
    config = accelerator.parallelism_config
    if config and config.sp_size > 1:
        is_deepspeed = accelerator.distributed_type == DistributedType.DEEPSPEED
        need(is_deepspeed, f"sp_size is DeepSpeed's alone, and is not looked at under {accelerator.distributed_type}")
    model = small_model(plan)
    if layout["tensor_parallel"] > 1:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            mesh = accelerator.torch_device_mesh["tp"]
            model = type(model).from_pretrained(folder, tp_plan="auto", device_mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    if layout["context_parallel"] > 1:
        return
    tokens = torch.zeros(layout["micro_batch_size"], 64, dtype=torch.int64)
    with accelerator.no_sync(model):
        # DDP would look at what others sent.
        accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
    optimizer.step()
