"""torchtitan's own trainer, made for a plan without a GPU: it cuts the model, makes the pipeline's schedule and the
optimizer, and runs forward and backward of each stage that a rank has. The process group answers nothing, and tensors
have shapes but no contents."""

import os
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch

# Its device is the one that is there; without any it would take a GPU.
torch._utils._get_available_device_type = lambda: "cpu"
# It draws until all that it drew lies between bounds.
torch.nn.init.trunc_normal_ = lambda tensor, *_, **__: tensor
torch.Tensor.pin_memory = lambda tensor: tensor
# Kernels that are not installed.
for name in ("deepep", "hybridep"):
    sys.modules[f"torchtitan.distributed.deepep.{name}"] = MagicMock()

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.nn.attention import flex_attention  # noqa: E402
from torchtitan.models.common import attention, decoder, token_dispatcher  # noqa: E402
from torchtitan.models.gpt_oss import model as gpt_oss  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from plans import apart, ranks_to_try  # noqa: E402

# It refuses the CPU, where it has no backward pass.
flex_attention._validate_device = lambda *_: None


def attend(self, q_BLNH, k_BLNH, v_BLNH, *, out_transform=None, **_):
    """As varlen attention, which needs to know where documents begin."""
    out = v_BLNH.repeat_interleave(q_BLNH.shape[2] // v_BLNH.shape[2], 2)
    return out_transform(out, q_BLNH.sum(3)) if out_transform else out


attention.VarlenAttention.forward = attend
for module in (attention, decoder, gpt_oss):
    module.create_varlen_metadata_for_document = lambda _: None


def attempt(plan, config):
    """Fails with what torchtitan says where it refuses the plan."""
    keep_few_layers(config)
    for rank in ranks_to_try(plan):
        apart(lambda rank=rank: step(trainer(config, plan["num_gpus"], rank)))


def keep_few_layers(config):
    """One layer of each kind on each stage: the others are like it."""
    model, parts = config.model_spec.model, config.parallelism.module_fqns_per_model_part
    names = [[f"layers.{index}" for index in range(len(model.layers))]]
    kept, cut = [], []
    for part in parts or names:
        kinds = {}
        for name in part:
            if name.startswith("layers."):
                layer = model.layers[int(name.removeprefix("layers."))]
                window = getattr(layer.attention, "sliding_window_size", None)
                kinds.setdefault((getattr(layer, "moe", None) is None, window), layer)
        ends = [name for name in part if not name.startswith("layers.")]
        cut.append([*ends, *(f"layers.{len(kept) + index}" for index in range(len(kinds)))])
        kept += kinds.values()
    model.layers = kept
    if parts:
        config.parallelism.module_fqns_per_model_part = cut


def trainer(config, world, rank):
    os.environ.update(NGPU=str(world), RANK=str(rank), LOCAL_RANK="0")
    config.comm.mode = "fake_backend"
    # Else ranks would be told one.
    config.debug.seed = 0
    # What neither cuts nor computes.
    for name in ("tokenizer", "dataloader", "checkpoint", "metrics"):
        setattr(config, name, MagicMock())
    config.checkpoint.create_seed_checkpoint = False
    memory = SimpleNamespace(max_reserved_gib=0, max_reserved_pct=0)
    monitor = SimpleNamespace(device_name="H100", get_peak_stats=lambda: memory)
    config.metrics.build.return_value.device_memory_monitor = monitor
    type(config).to_dict = lambda _: {}
    pretend_exchanges()
    made_empty = torch.nn.Module.to_empty
    fake = FakeTensorMode(allow_non_fake_inputs=True)

    def to_empty(module, **options):
        # From here on there is memory, in which nothing is.
        if not fake.enter_stack:
            fake.__enter__()
        return made_empty(module, **options)

    torch.nn.Module.to_empty = to_empty
    return Trainer(config)


def pretend_exchanges():
    """How many tokens each expert takes is contents, of which there are none: as many come as go."""

    def dispatch(self, x, scores, experts, counts):
        rows = x.repeat_interleave(experts.shape[1], 0)
        return rows, counts[: self.num_experts // self.ep_mesh.size()], scores

    def combine(self, rows, scores, x):
        return (rows.view(x.shape[0], -1, x.shape[1]) * scores.unsqueeze(2)).sum(1).to(x.dtype)

    for name in ("AllToAll", "DeepEP", "HybridEP"):
        kind = getattr(token_dispatcher, f"{name}TokenDispatcher")
        whole = kind.dispatch, kind.combine
        kind.dispatch = lambda self, *given, whole=whole: (dispatch if self.ep_mesh else whole[0])(self, *given)
        kind.combine = lambda self, *given, whole=whole: (combine if self.ep_mesh else whole[1])(self, *given)
        kind.init_buffer = lambda self: None


def step(trainer):
    config, dims = trainer.config, trainer.parallel_dims
    each = config.training.local_batch_size
    if dims.pp_enabled:
        each = config.parallelism.pipeline_parallel_microbatch_size
    tokens = torch.zeros(each, config.training.seq_len, dtype=torch.int64)
    inputs, labels, more = trainer.post_dataloading_process(
        {"input": tokens, "positions": tokens.clone()}, tokens.clone()
    )
    length = inputs.shape[1]
    if config.parallelism.enable_sequence_parallel:
        length //= dims.tp
    for part in trainer.model_parts:
        taken = inputs
        if part.tok_embeddings is None:
            taken = torch.zeros(each, length, trainer.model_config.dim, dtype=torch.bfloat16, requires_grad=True)
        with trainer.train_context():
            made = part(taken, **more)
            if part.lm_head is not None:
                made, _ = trainer.loss_fn(made, labels, torch.tensor(1.0), positions=more["positions"])
            made.sum().backward()
    trainer.optimizers.step()
