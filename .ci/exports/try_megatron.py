"""Megatron-LM's own model, wrappers, optimizer and schedule, made for a plan without a GPU: the process group answers
nothing, and tensors have shapes but no contents. Its own layers stand in for Transformer Engine's."""

import contextlib
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.optimizer import get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer.moe import token_dispatcher
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.utils import get_model_config, unwrap_model
from megatron.training import argument_utils, global_vars, training
from megatron.training.models.gpt import GPTModelBuilder
from torch._subclasses import FakeTensorMode
from torch.distributed import init_process_group
from torch.testing._internal.distributed.fake_pg import FakeStore

from plans import apart, ranks_to_try


def attempt(plan, args):
    """Fails with what Megatron says where it refuses the plan."""
    for rank in ranks_to_try(plan):
        apart(lambda rank=rank: step(plan, args, rank))


class Attention(torch.nn.Module):
    """As Transformer Engine's takes queries, keys and values, and what it asks of them."""

    def __init__(self, config, layer_number, *_, pg_collection, cp_comm_type=None, **__):
        super().__init__()
        ranks = pg_collection.cp.size()
        if cp_comm_type == "a2a":
            heads = config.num_attention_heads // config.tensor_model_parallel_size
            groups = config.num_query_groups // config.tensor_model_parallel_size
            holds = heads % ranks == 0 and groups % ranks == 0
            assert holds, f"{heads} and {groups} heads for {ranks} context-parallel ranks"

    def forward(self, query, key, value, *_, **__):
        return value.repeat_interleave(query.shape[2] // value.shape[2], 2).flatten(2)


def make_groups(args, world, rank):
    init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        # They would want each other.
        create_gloo_process_groups=False,
    )


def gather_alike(into, mine, *_, **__):
    """Other ranks have what this one has."""
    into[:] = [mine] * len(into)


def pretend_cuda():
    """What a GPU would do, none of which is waited for here."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.Stream = torch.cuda.Event = torch.cuda.current_stream = MagicMock()
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.synchronize = lambda *_: None
    for name in ("cuda", "half", "bfloat16"):
        # They are made as they are to be.
        setattr(torch.nn.Module, name, lambda module, *_: module)
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    named = torch.Tensor.type
    torch.Tensor.type = lambda it, *given: named(it, *given) if given else named(it).replace("torch.", "torch.cuda.")
    torch.distributed.all_gather_object = gather_alike
    CudaRNGStatesTracker.fork = random._fork_rng = lambda *_: contextlib.nullcontext()
    random.FP8GlobalStateManager = SimpleNamespace(is_fp8_enabled=lambda: False)
    random.activation_recompute_forward = random.fp8_autocast = lambda **_: contextlib.nullcontext()
    random._get_share_storage = lambda: lambda *_: None
    random._get_all_rng_states = lambda: ()
    random._set_all_rng_states = lambda: None
    plain = torch.tensor
    torch.tensor = lambda *given, pin_memory=False, **options: plain(*given, **options)
    LocalSpecProvider.core_attention = lambda _: Attention
    WrappedTorchNorm.__new__ = lambda _, config, hidden_size, eps=1e-5, **__: torch.nn.RMSNorm(
        hidden_size, eps, dtype=config.params_dtype
    )
    for name in ("fused_dispatch", "fused_combine", "set_deepep_num_sms", "hybrid_ep_dispatch", "hybrid_ep_combine"):
        setattr(token_dispatcher, name, MagicMock())
    # Which tokens go where is contents, of which there are none.
    MoELayer.forward = lambda self, hidden, *_, **__: (hidden, None)


def step(plan, args, rank):
    world = plan["num_gpus"]
    args.rank = rank
    make_groups(args, world, rank)
    pretend_cuda()
    # Kernels that are not installed, and weights, which are not looked at.
    args.gradient_accumulation_fusion = args.masked_softmax_fusion = args.use_precision_aware_optimizer = False
    args.main_grads_dtype = args.main_params_dtype = args.exp_avg_dtype = args.exp_avg_sq_dtype = torch.float32
    args.perform_initialization = False
    args.fp8 = args.fp4 = None
    args.fp8_param_gather = False
    args.cpu_offloading = args.fine_grained_activation_offloading = False
    args.transformer_impl = "local"
    # What runs beside what makes no difference here, where collectives in groups are not known.
    args.overlap_param_gather = args.overlap_grad_reduce = False
    if args.pipeline_model_parallel_size == 1:
        args.num_layers = 2
        if isinstance(args.moe_layer_freq, list):
            args.moe_layer_freq = [args.moe_layer_freq[0], args.moe_layer_freq[-1]]
    global_vars.set_args(args)
    config = argument_utils.gpt_config_from_args(args)
    builder = GPTModelBuilder(config)

    def provider(pre_process, post_process, vp_stage=None, config=None, pg_collection=None):
        return builder.build_model(pg_collection, pre_process, post_process, vp_stage)

    with FakeTensorMode(allow_non_fake_inputs=True):
        # Its FSDP takes no other device than a GPU: the model under it is tried.
        wraps = not args.use_megatron_fsdp
        model = training.get_model(provider, ModelType.encoder_or_decoder, wrap_with_ddp=wraps)
        if wraps:
            make_optimizer(args, model)
        run(plan, args, model)


def make_optimizer(args, model):
    optimizer, overrides = training.get_megatron_optimizer_config(args)
    get_megatron_optimizer(optimizer, model, config_overrides=overrides, use_gloo_process_groups=False)


def run(plan, args, model):
    # It runs passes in pieces, of which the stand-in for experts has none.
    get_model_config(model[0]).overlap_moe_expert_parallel_comm = False
    for part in model:
        # The others are like it.
        decoder = unwrap_model(part).decoder
        del decoder.layers[1:]
        decoder.num_layers_per_pipeline_rank = len(decoder.layers)
    length = args.seq_length // args.context_parallel_size
    tokens = torch.zeros(args.micro_batch_size, length, dtype=torch.int64)

    def forward(_, part):
        return part(tokens, tokens, None, labels=tokens), lambda output: (output.float().mean(), {})

    # As many as go through the schedule's beginning, middle and end.
    ranks, count = plan["layout"]["pipeline_parallel"], plan["layout"]["num_micro_batches"]
    get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=[None] * len(model),
        model=model,
        num_microbatches=min(count, 2 * ranks + count % ranks),
        seq_length=args.seq_length,
        micro_batch_size=args.micro_batch_size,
    )
