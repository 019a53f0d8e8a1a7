"""Graphs from PyTorch: a module, or what `torch.export` makes of one, as a native graph."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Optional, Union

from .dims import Conflict, Value
from .graph import Names
from .reader import Reader

__all__ = ["UnsupportedModule", "graph_from_torch"]

#: Losses that can be put after a module's output.
LOSSES = ("cross_entropy", "mean_squared_error")

#: Batches tried for the export: one that no other size equals.
BATCHES = (2, 3, 5, 7, 11, 13, 17)


class UnsupportedModule(ValueError):
    """What of a module a graph cannot say, all of it at once, and what would work."""


def graph_from_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    name: Optional[str] = None,
    loss: Optional[str] = None,
    sequence_axis: Optional[int] = None,
    output: Optional[Union[str, "os.PathLike[str]"]] = None,
) -> dict[str, Any]:
    """A `torch.nn.Module`, called with example inputs, or a `torch.export.ExportedProgram`, as a native graph.

    The first axis of the inputs is the batch, whose size the graph leaves open; `sequence_axis` is one whose size it leaves
    open too. `loss` puts `cross_entropy` or `mean_squared_error` after the only output. `output` is a file to write. A
    module is read as it trains: dropout counts, whatever mode the module is in.

    Raises `UnsupportedModule` with all operators that a graph cannot say.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise ImportError("graphs from PyTorch need PyTorch 2.6 or later: pip install torch") from error
    if loss is not None and loss not in LOSSES:
        raise ValueError(f"`loss` is {loss!r}\nhint: it can be {' or '.join(LOSSES)}")
    program, batch, given = exported(torch, module, tuple(args), dict(kwargs or {}))
    graph = read(torch, program, batch, sequence_axis, name or given, loss)
    if output is not None:
        Path(output).write_text(json.dumps(graph, indent=1) + "\n", encoding="utf-8")
    return graph


def exported(torch: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int, str]:
    """The exported program, the size of its batch, and its name."""
    if isinstance(module, torch.export.ExportedProgram):
        names = set(module.graph_signature.user_inputs)
        inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder" and node.name in names]
        sizes = [each.shape[0] for each in inputs if hasattr(each, "shape") and len(each.shape)]
        if not sizes:
            raise ValueError(f"the program has {len(inputs)} inputs, none with a batch")
        first = sizes[0]
        return module, first if isinstance(first, int) else int(first.node.hint), "model"
    if not args and not kwargs:
        raise ValueError("no example inputs\nhint: graph_from_torch(module, (torch.zeros(1, 3, 224, 224),))")
    args, kwargs, batch = rebatched(torch, args, kwargs)
    was = {each: each.training for each in module.modules()}
    module.train()
    try:
        program = torch.export.export(module, args, kwargs, strict=False)
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        raise UnsupportedModule(
            f"torch.export cannot read the module: {first}\n"
            "hint: give it arguments for which `forward` asks nothing of the values of tensors, or the ExportedProgram"
        ) from error
    finally:
        for each, mode in was.items():
            each.training = mode
    return program, batch, type(module).__name__.lower()


def rebatched(torch: Any, args: Any, kwargs: Any) -> tuple[Any, Any, int]:
    """The inputs with a batch whose size no other dimension has, where all have the same batch."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    tensors = [each for each in leaves if isinstance(each, torch.Tensor) and each.dim() > 0]
    if not tensors:
        raise ValueError("no example input is a tensor")
    sizes = {tensor.shape[0] for tensor in tensors}
    if len(sizes) > 1:
        return args, kwargs, tensors[0].shape[0]
    others = {extent for tensor in tensors for extent in tensor.shape[1:]}
    batch = next(each for each in (*BATCHES, *range(19, 2**16, 2)) if each not in others)

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
            return leaf
        return leaf[:1].expand(batch, *leaf.shape[1:]).contiguous()

    args, kwargs = torch.utils._pytree.tree_map(resized, (args, kwargs))
    return args, kwargs, batch


def read(torch: Any, program: Any, batch: int, sequence_axis: Optional[int], name: str, loss: Optional[str]) -> dict[str, Any]:
    """The graph of a program."""
    whole: frozenset[str] = frozenset()
    while True:
        reader = Reader(torch, program, batch, sequence_axis, whole)
        outputs = [each for each in leaves_of(reader.run()) if isinstance(each, Value)]
        if loss is not None:
            outputs = [with_loss(reader, outputs, loss)]
        needed = {node.name for node in reader.b.finished(each.node for each in outputs)}
        again = {
            node
            for node, parts in reader.b.parts.items()
            if any(part in needed for part in parts.values())
            and (node in needed or sum(e - s for s, e in parts if parts[s, e] in needed) != reader.part_sizes[node])
        }
        if not again:
            break
        whole |= again
    refuse(reader, needed)
    check_parameters(reader, needed)
    version = getattr(torch, "__version__", "")
    try:
        return reader.b.json(name, f"From PyTorch {version}", [each.node for each in outputs])
    except Conflict as error:
        raise UnsupportedModule(f"the module has a tensor that a graph cannot name: {error}") from error


def leaves_of(given: Any) -> list[Any]:
    if isinstance(given, (list, tuple)):
        return [leaf for each in given for leaf in leaves_of(each)]
    return [given]


def with_loss(reader: Reader, outputs: list[Value], loss: str) -> Value:
    if len(outputs) != 1:
        raise ValueError(f"`loss` follows one output, but the module has {len(outputs)}")
    reader.b.place = "loss"
    x = reader.b.tidy(outputs[0])
    attributes: dict[str, Any] = {}
    if loss == "cross_entropy":
        x, classes = reader.b.single(x, -1)
        attributes["over"] = Names([classes], is_one=True)
    return reader.b.add(loss, [x], [], [], **attributes)


def refuse(reader: Reader, needed: set[str]) -> None:
    """Raises what cannot be read of what the outputs need."""
    wrong = [problem for node, problem in reader.wrong.items() if node in needed]
    if not wrong:
        return
    listed = "\n".join(f"  {problem}" for problem in dict.fromkeys(wrong))
    raise UnsupportedModule(
        f"{len(wrong)} operators of the module cannot be read:\n{listed}\n"
        "hint: put others in their place, or give the part of the module without them; those that are read are the rows of "
        "parallelism_planner.torch_graph.operators.ROWS"
    )


def check_parameters(reader: Reader, needed: set[str]) -> None:
    """Checks that each parameter that the program reads is in the graph."""
    users = {node for node in reader.program.graph.nodes if node.op == "placeholder" and node.users}
    read = {reader.env[node].key for node in users if getattr(reader.env[node], "key", None)}
    kept: dict[int, set[int]] = {}
    for key, owner in reader.b.owners.items():
        parts = reader.b.parts.get(owner, {}).values()
        tied = [node.name for node in reader.b.nodes.values() if node.tied_to == owner]
        if owner in needed or any(each in needed for each in [*parts, *tied]):
            kept.setdefault(key[0], set()).update(range(key[1], key[2]))
    tensors = reader.program.state_dict
    paths = sorted({reader.parameters[key][0] for key in read if key in reader.parameters})
    frozen = [path for path in paths if not getattr(tensors[path], "requires_grad", True)]
    if 0 < len(frozen) < len(paths):
        raise UnsupportedModule(
            f"{len(frozen)} of {len(paths)} parameters are not trained: {', '.join(frozen[:8])}\n"
            "hint: a graph trains all of its parameters: give the part of the module that is trained"
        )
    lost = [reader.parameters[key][0] for key in sorted(read, key=str) if len(kept.get(key[0], ())) < key[2]]
    if lost:
        raise UnsupportedModule(
            f"{len(lost)} parameters are read, but not by what the outputs need: {', '.join(sorted(lost)[:8])}\n"
            "hint: return what is computed from them, or leave them out of the module"
        )

