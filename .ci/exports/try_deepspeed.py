"""DeepSpeed's own engine, made for a plan without a GPU, and stepped once where it has no pipeline. The process group
answers nothing. The model is of the plan's kind with as many heads, but few and narrow layers, as its tensors have
contents."""

import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.accelerator import get_accelerator  # noqa: E402
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF  # noqa: E402
from deepspeed.sequence import cross_entropy  # noqa: E402
from torch.distributed import init_process_group  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402,F401 (imported once, before checks fork)

from plans import NotTriable, apart, ranks_to_try, small_model  # noqa: E402

TOKENS = 64

# Other tensor-parallel ranks have the tokens that this one has, and as much of the vocabulary.
torch.equal = lambda *_: True
cross_entropy._validate_vocab_shard_bounds = lambda size, start, end, group, device: size * group.size()
# What it would compile.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None


def attempt(plan, config, scope):
    """Fails with what DeepSpeed says where it refuses the plan."""
    for rank in ranks_to_try(plan):
        apart(lambda rank=rank: step(plan, config, scope, rank))


def step(plan, config, scope, rank):
    world, layout = plan["num_gpus"], plan["layout"]
    # Its own Adam is a kernel that it would compile.
    if "adam" in config["optimizer"]["type"].lower():
        config["optimizer"]["params"]["torch_adam"] = True
    config["zero_force_ds_cpu_optimizer"] = False
    os.environ.update(WORLD_SIZE=str(world), RANK=str(rank), LOCAL_RANK="0")
    init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    get_accelerator()._communication_backend_name = "fake"
    get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed("fake")
    if layout["pipeline_parallel"] > 1:
        blocks = [torch.nn.Linear(8, 8) for _ in range(sum(stage["num_blocks"] for stage in plan["stages"]))]
        # Its schedule asks other ranks for the shapes of messages: it is made, and not run.
        model = scope["PlannedPipeline"](blocks, loss_fn=lambda made, _: made.sum())
        deepspeed.initialize(model=model, config=config)
        return
    ranks = layout["context_parallel"]
    model = small_model(plan)
    attention = model.config._attn_implementation
    if ranks > 1 and attention == "eager":
        raise NotTriable("of this model's attention DeepSpeed takes FlashAttention alone, which needs a GPU")
    groups = UlyssesSPAttentionHF.register_with_transformers(
        model, attention, ranks, layout["micro_batch_size"], seq_length=TOKENS * ranks, seq_length_is_variable=False
    )
    engine, *_ = deepspeed.initialize(model=model, config=config, mpu=groups)
    tokens = torch.zeros(layout["micro_batch_size"], TOKENS, dtype=torch.int64)
    places = torch.arange(TOKENS).expand_as(tokens)
    engine.backward(engine(input_ids=tokens, position_ids=places, labels=tokens).loss)
    engine.step()
