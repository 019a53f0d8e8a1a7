"""Writes the graphs of this folder from PyTorch modules, and what PyTorch counts of each (`counts.json`).

    python ir/tests/it/cases/torch/write.py            writes them
    python ir/tests/it/cases/torch/write.py --check    makes them anew, with some that ship, and compares the counts

It needs torch, torchvision and transformers. Parameters and operations are PyTorch's own: `numel`, and those of
`torch.utils.flop_counter` of a forward pass, for one sample. `saved_bytes` are what autograd's hooks for saved tensors see
for one sample in fp32, without parameters and buffers; of attention it depends on the kernel, so it is left out there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[4] / "planner" / "python"))

import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from parallelism_planner import graph_from_torch, planner

BATCH, TOKENS = 2, 32


class Twice(nn.Sequential):
    """Two convolutions of a U-Net."""

    def __init__(self, before: int, after: int) -> None:
        layers: list[nn.Module] = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class UNet(nn.Module):
    """Ronneberger et al. 2015, with padded convolutions."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        widths = [width << level for level in range(4)]
        self.down = nn.ModuleList(Twice(before, after) for before, after in zip([3, *widths], widths))
        self.middle = Twice(widths[-1], 2 * widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * each, each, 2, stride=2) for each in widths[::-1])
        self.join = nn.ModuleList(Twice(2 * each, each) for each in widths[::-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


class Recommender(nn.Module):
    """Naumov et al. 2019 (DLRM): bags of categories, and products of all pairs of features."""

    def __init__(self, rows: tuple[int, ...] = (100_000, 10_000, 30), width: int = 16) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(each, width, mode="sum") for each in rows)
        pairs = [(a, b) for a in range(len(rows) + 1) for b in range(a)]
        self.register_buffer("first", torch.tensor([a for a, _ in pairs]))
        self.register_buffer("second", torch.tensor([b for _, b in pairs]))
        self.top = nn.Sequential(nn.Linear(width + len(pairs), 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, *bags: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *(table(bag) for table, bag in zip(self.tables, bags))], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        return torch.sigmoid(self.top(torch.cat([x, products[:, self.first, self.second]], 1)))


class Denoiser(nn.Module):
    """A block of a diffusion model: group norms, attention over the pixels, a step's embedding, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.norm = nn.GroupNorm(8, 32)
        self.step = nn.Linear(64, 32)
        self.projections = nn.Conv2d(32, 96, 1)
        self.output = nn.Conv2d(32, 32, 1)
        self.last = nn.Conv2d(32, 3, 3, padding=2, dilation=2)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        x = self.first(x) + self.step(F.silu(step))[:, :, None, None]
        batch, channels, rows, columns = x.shape
        heads = self.projections(F.silu(self.norm(x))).reshape(batch, 3, 4, channels // 4, rows * columns)
        y = F.scaled_dot_product_attention(*heads.transpose(3, 4).unbind(1))
        y = self.output(y.transpose(2, 3).reshape(batch, channels, rows, columns))
        return self.last(F.interpolate(x + y, scale_factor=2, mode="bilinear"))


class Repeated(nn.Module):
    """A layer that runs three times, and a head that reads the embedding's table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.layer = nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        for _ in range(3):
            x = x + F.relu(self.layer(x))
        return self.head(x)


class Sound(nn.Module):
    """Convolutions over time, and the mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv1d(8, 16, 5, stride=2, padding=2)
        self.deep = nn.Conv1d(16, 16, 3, padding=1, groups=16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(F.gelu(self.deep(self.wide(x))).transpose(1, 2)).mean(1))


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
            vocab_size=100, attn_implementation="sdpa",
        )
    )


def t5() -> nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=32, d_ff=64, num_layers=2, num_heads=4, d_kv=8, vocab_size=100)
    )


def models() -> dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any], dict[str, Any]]]:
    """Each module with its inputs and the options of its graph."""
    image, tokens = torch.randn(BATCH, 3, 64, 64), torch.randint(0, 50, (BATCH, TOKENS))
    vit = torchvision.models.VisionTransformer(32, 8, 2, 4, 64, 128, dropout=0.1, num_classes=10)
    swin = torchvision.models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)
    bags = tuple(torch.randint(0, 30, (BATCH, each)) for each in (1, 5, 20))
    plain: dict[str, Any] = {}
    return {
        "unet": (UNet(), (image,), plain, plain),
        "recommender": (Recommender(), (torch.randn(BATCH, 13), *bags), plain, {"loss": "mean_squared_error"}),
        "denoiser": (Denoiser(), (image[:, :, :16, :16], torch.randn(BATCH, 64)), plain, plain),
        "repeated": (Repeated(), (tokens,), plain, {"loss": "cross_entropy"}),
        "sound": (Sound(), (torch.randn(BATCH, 8, 64),), plain, plain),
        "mobilenet-v2": (torchvision.models.mobilenet_v2(width_mult=0.25), (image,), plain, plain),
        "vit": (vit, (image[:, :, :32, :32],), plain, plain),
        "swin": (swin, (image,), plain, plain),
        "llama": (llama(), (tokens,), {"use_cache": False}, {"loss": "cross_entropy"}),
        "t5": (t5(), (), {"input_ids": tokens, "decoder_input_ids": tokens, "use_cache": False}, plain),
    }


def saved_bytes(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes of the storages that autograd saves, without those of parameters and buffers."""
    mine = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    storages, alive = {}, []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in mine:
            storages[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        module(*args, **kwargs)
    return sum(storages.values())


def counted(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, int]:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.train()(*args, **kwargs)
    counts = {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "forward_flops": counter.get_total_flops() // BATCH,
    }
    is_image = any(isinstance(each, nn.Conv2d) for each in module.modules())
    if is_image and not any(isinstance(each, (nn.LayerNorm, nn.GroupNorm)) for each in module.modules()):
        counts["saved_bytes"] = saved_bytes(module, args, kwargs) // BATCH
    return counts


def written(graph: dict[str, Any]) -> str:
    """The graph with a line for each node and edge."""
    lines = []
    for key, value in graph.items():
        if isinstance(value, list):
            items = ",\n  ".join(json.dumps(item) for item in value)
            lines.append(f'"{key}": [\n  {items}\n ]')
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def inspected(model: Any) -> dict[str, int]:
    """What the planner counts of a model or a graph."""
    with tempfile.TemporaryDirectory() as folder:
        path = model
        if isinstance(model, dict):
            path = Path(folder) / "graph.json"
            path.write_text(written(model), encoding="utf-8")
        found = json.loads(planner("inspect", path, seq_len=TOKENS, format="json"))
    per_token = TOKENS if str(model).endswith("config.json") else 1
    return {
        "parameters": found["num_parameters"],
        "forward_flops": round(found["forward_flops_per_token"] * per_token),
    }


def check() -> None:
    """Compares what the planner counts of graphs with what PyTorch counts of their modules, and with shipped models."""
    for name, (module, args, kwargs, options) in models().items():
        compare(name, inspected(graph_from_torch(module, args, kwargs, name=name, **options)), counted(module, args, kwargs))
    image = torch.zeros(1, 3, 224, 224)
    for name in ("resnet50", "vgg19", "alexnet"):
        shipped = {"resnet50": "resnet-50", "vgg19": "vgg-19"}.get(name, name)
        graph = graph_from_torch(getattr(torchvision.models, name)(), (image,))
        compare(name, inspected(graph), inspected(FOLDER.parents[4] / "models" / f"{shipped}.json"))
    config = FOLDER.parents[4] / "models" / "llama-3.2-1b" / "config.json"
    with torch.device("meta"):
        module = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(config))
        tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    graph = graph_from_torch(module, (tokens,), {"use_cache": False}, loss="cross_entropy")
    compare("llama-3.2-1b", inspected(graph), inspected(config))


def compare(name: str, ours: dict[str, int], theirs: dict[str, int]) -> None:
    ratio = ours["forward_flops"] / theirs["forward_flops"]
    print(f"{name}: {ours['parameters']:,} parameters, {ratio:.4f} of the operations")
    if ours["parameters"] != theirs["parameters"] or abs(ratio - 1) > 0.01:
        sys.exit(f"error: {name} has {theirs} by the other count, but its graph {ours}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes graphs of PyTorch modules for the tests.")
    parser.add_argument("--check", action="store_true", help="compare graphs made now with PyTorch's counts")
    torch.manual_seed(0)
    if parser.parse_args().check:
        check()
        return
    counts = {}
    for name, (module, args, kwargs, options) in models().items():
        graph = graph_from_torch(module, args, kwargs, name=name, **options)
        graph["description"] = "From PyTorch, by write.py of this folder"
        (FOLDER / f"{name}.json").write_text(written(graph), encoding="utf-8")
        counts[name] = counted(module, args, kwargs)
    (FOLDER / "counts.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
