"""Makes the reference runs: tiny models of Hugging Face transformers, trained by PyTorch.

    python make.py

Needs the packages that README.md names; takes ten seconds on one core. Into its own folder it writes
`tokens.json`, the batches that all models train on, and for each model a folder with

- `config.json`, as a user would have it;
- `model.safetensors`, the initial parameters, float32, under the names of transformers;
- `losses.json`, the runs: optimizer, losses, gradient norms, first gradients, final parameters.

Each run reads its model back from that folder, so it starts from what the files say.
"""

import json
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path

import safetensors.torch
import torch
import transformers
from torch.overrides import TorchFunctionMode

HERE = Path(__file__).parent
TEXT = HERE / "../../data/alice.txt"

NUM_STEPS = 20
BATCH = 4  # sequences
SEQUENCE = 32  # tokens that have a target
MAX_GRADIENT_NORM = 1.0
AUXILIARY_COEFFICIENT = 0.01

# Large enough that attention and routing are far from even at the start.
INITIALIZER_RANGE = 0.1

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": INITIALIZER_RANGE,
    "intermediate_size": 176,
    "max_position_embeddings": 64,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 256,
}

MODELS = {
    "llama": LLAMA,
    # Heads wider than hidden / heads, tied embeddings, and frequencies of all three kinds: kept,
    # interpolated and scaled.
    "llama3": LLAMA
    | {
        "head_dim": 16,
        "hidden_size": 32,
        "intermediate_size": 88,
        "max_position_embeddings": 512,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 64,
            "rope_type": "llama3",
        },
        "tie_word_embeddings": True,
    },
    "gpt2": {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "initializer_range": INITIALIZER_RANGE,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 64,
        "n_embd": 48,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 64,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
        "vocab_size": 256,
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": 32,
        "initializer_range": INITIALIZER_RANGE,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "model_type": "mixtral",
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "output_router_logits": False,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "router_aux_loss_coef": 0.0,
        "router_jitter_noise": 0.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "vocab_size": 256,
    },
}

ADAMW = {"kind": "adamw", "learning_rate": 1e-3, "betas": [0.9, 0.95], "epsilon": 1e-8, "weight_decay": 0.1}
SGD = {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.0}


class AllDouble(TorchFunctionMode):
    """Computes in float64 the parts that transformers casts to float32: norms, rotary angles, routing."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def double(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        result = function(*map(double, args), **{key: double(value) for key, value in (kwargs or {}).items()})
        is_single = isinstance(result, torch.Tensor) and result.dtype == torch.float32
        assert not is_single, f"{function} gave float32"
        return result


def batches():
    """Tokens [step, batch, sequence + 1]: bytes of evenly spaced places in the text."""
    text = TEXT.read_bytes()
    rows = NUM_STEPS * BATCH
    width = SEQUENCE + 1
    starts = [row * (len(text) - width) // rows for row in range(rows)]
    tokens = torch.tensor([list(text[start : start + width]) for start in starts])
    return tokens.reshape(NUM_STEPS, BATCH, width)


def make_weights(folder):
    """Draws initial parameters. Biases are not zero and norms not one, so that no mistake in them
    goes unseen."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(INITIALIZER_RANGE * torch.randn_like(parameter))
    safetensors.torch.save_file(checkpoint(model), folder / "model.safetensors", {"format": "pt"})


def checkpoint(model):
    """The model's parameters by the names under which transformers saves them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return safetensors.torch.load_file(Path(folder) / "model.safetensors")


def summary(model, tensor_of):
    """Sum and L2 norm, in float64, of a tensor for each parameter (such as its gradient), by the
    parameter's name in `model.safetensors`."""
    kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(tensor_of(parameter))
        tensors = checkpoint(model)
        for name, parameter in model.named_parameters():
            parameter.copy_(kept[name])
    return {
        name: {"sum": tensor.double().sum().item(), "norm": tensor.double().norm().item()}
        for name, tensor in sorted(tensors.items())
    }


def make_optimizer(model, settings):
    rates = {"lr": settings["learning_rate"], "weight_decay": settings["weight_decay"]}
    match settings["kind"]:
        case "adamw":
            return torch.optim.AdamW(
                model.parameters(), betas=tuple(settings["betas"]), eps=settings["epsilon"], **rates
            )
        case "sgd":
            return torch.optim.SGD(model.parameters(), momentum=settings["momentum"], **rates)


def watch_routing(model):
    """A list that receives, for each router and step, the least gap between the last expert that was
    chosen and the first that was not, as a difference of probabilities."""
    gaps = []

    def record(router, _, outputs):
        probabilities = outputs[0].detach().double().softmax(-1).sort(-1, descending=True).values
        gaps.append((probabilities[:, router.top_k - 1] - probabilities[:, router.top_k]).min().item())

    for name, module in model.named_modules():
        if name.endswith(".mlp.gate"):
            module.register_forward_hook(record)
    return gaps


def train(folder, tokens, settings, dtype, auxiliary_coefficient):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa", experts_implementation="eager"
    )
    model.train()
    optimizer = make_optimizer(model, settings)
    gaps = watch_routing(model)
    first_gradients = None
    steps = []
    for batch in tokens:
        step = {}
        with_router = {"output_router_logits": True} if auxiliary_coefficient else {}
        outputs = model(input_ids=batch[:, :-1], use_cache=False, **with_router)
        loss = torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), batch[:, 1:].flatten())
        assert loss.dtype == dtype
        step["cross_entropy"] = loss.item()
        if auxiliary_coefficient:
            step["auxiliary_loss"] = outputs.aux_loss.item()
            loss = loss + auxiliary_coefficient * outputs.aux_loss
        step["loss"] = loss.item()
        optimizer.zero_grad()
        loss.backward()
        if first_gradients is None:
            first_gradients = summary(model, lambda parameter: parameter.grad)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        step["gradient_norm"] = norm.item()
        optimizer.step()
        steps.append(step)
    run = {"dtype": str(dtype).removeprefix("torch."), "optimizer": settings}
    run["max_gradient_norm"] = MAX_GRADIENT_NORM
    run["auxiliary_loss_coefficient"] = auxiliary_coefficient
    if gaps:
        run["least_routing_gap"] = min(gaps)
    run["steps"] = steps
    run["first_gradients"] = first_gradients
    run["final_parameters"] = summary(model, lambda parameter: parameter)
    return run


def runs(name):
    """The runs of a model: optimizer, type and coefficient of the auxiliary loss."""
    for dtype in (torch.float32, torch.float64):
        yield ADAMW, dtype, 0.0
        if name == "llama":
            yield SGD, dtype, 0.0
        if name == "mixtral":
            yield ADAMW, dtype, AUXILIARY_COEFFICIENT


@contextmanager
def in_precision(dtype):
    torch.set_default_dtype(dtype)
    with AllDouble() if dtype == torch.float64 else nullcontext():
        yield
    torch.set_default_dtype(torch.float32)


def write_json(path, value):
    """Writes one line for each innermost object."""
    encoder = json.JSONEncoder()

    def lines(value, indent):
        inner = "  " * (indent + 1)
        if isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values()):
            items = [f"{inner}{encoder.encode(key)}: {lines(item, indent + 1)}" for key, item in value.items()]
            return "{\n" + ",\n".join(items) + "\n" + "  " * indent + "}"
        if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
            items = [inner + lines(item, indent + 1) for item in value]
            return "[\n" + ",\n".join(items) + "\n" + "  " * indent + "]"
        return encoder.encode(value)

    path.write_text(lines(value, 0) + "\n")


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokens = batches()
    write_json(HERE / "tokens.json", tokens.tolist())
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    for name, config in MODELS.items():
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        make_weights(folder)
        record = {"versions": versions, "batch_size": BATCH, "sequence_length": SEQUENCE, "runs": []}
        for settings, dtype, auxiliary_coefficient in runs(name):
            with in_precision(dtype):
                record["runs"].append(train(folder, tokens, settings, dtype, auxiliary_coefficient))
        write_json(folder / "losses.json", record)
        for run in record["runs"]:
            losses = [step["loss"] for step in run["steps"]]
            print(name, run["optimizer"]["kind"], run["dtype"], losses[0], losses[-1])


if __name__ == "__main__":
    main()
