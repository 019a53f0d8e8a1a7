"""Names of dimensions: what they count decides how they may be sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .dims import Conflict, Dim, flat

if TYPE_CHECKING:
    from .graph import Node

#: Names without a role of their own, in the order in which they are given.
PLAIN = ("features", "hidden", "latent", "state", "channels", "height", "width", "head_dim", "sequence", "context")

#: Operators that leave a dimension what it is: between two linear layers they do not keep it from being sharded.
ELEMENTWISE = frozenset(
    "gelu gelu_tanh relu silu tanh sigmoid gated_activation scale dropout elementwise multiply".split()
)


def name_dims(nodes: Sequence[Node]) -> dict[int, str]:
    """The name of each dimension, by its id: those with a role, inner features that tensor parallelism may shard, and
    others by what they are like, none twice in a tensor."""
    tensors = [flat(node.dims) for node in nodes]
    for node, dims in zip(nodes, tensors):
        classes = [id(dim.name) for dim in dims]
        if len(set(classes)) < len(classes):
            raise Conflict(f"`{node.name}` would have two dimensions of one name")
    mark_vocabulary(nodes)
    mark_inner(nodes)
    order: dict[int, Dim] = {}
    mates: dict[int, set[int]] = {}
    for dims in tensors:
        for dim in dims:
            order.setdefault(id(dim.name), dim)
            mates.setdefault(id(dim.name), set()).update(id(other.name) for other in dims)
    given: dict[int, str] = {}
    for key, dim in order.items():
        if dim.name.role or dim.root().symbol == "b":
            given[key] = dim.name.role or "batch"
    # Hints first, so that those without one make room.
    for key, dim in sorted(order.items(), key=lambda item: item[1].name.hint is None):
        if key in given:
            continue
        taken = {given[mate] for mate in mates[key] if mate in given and mate != key}
        wanted: tuple[str, ...] = (dim.name.hint, *PLAIN) if dim.name.hint else PLAIN
        if dim.root().symbol == "s":
            wanted = ("sequence", "context")
        free = [name for name in wanted if name not in taken]
        if not free:
            raise Conflict("a tensor has more dimensions than there are names")
        given[key] = free[0]
    return {id(dim): given[id(dim.name)] for dims in tensors for dim in dims}


def mark_vocabulary(nodes: Sequence[Node]) -> None:
    """Calls `vocabulary` what a head makes: as many features as a table has rows, which only a loss or an output takes."""
    tables = {node.attributes["num_embeddings"] for node in nodes if node.kind == "embedding"}
    readers: dict[str, set[str]] = {}
    for node in nodes:
        for source in node.inputs:
            readers.setdefault(source, set()).add(node.kind)
    for node in nodes:
        made = flat(node.attributes["out_features"].dims) if node.kind == "linear" else []
        is_head = len(made) == 1 and made[0].size in tables and readers.get(node.name, set()) <= {"cross_entropy"}
        if is_head and made[0].name.role is None:
            made[0].name.role = "vocabulary"


def mark_inner(nodes: Sequence[Node]) -> None:
    """Calls `intermediate` what one linear layer makes and others sum over, with elementwise functions alone between:
    of two such layers in a row the first."""
    makers: dict[int, list[Node]] = {}
    others: set[int] = set()
    readers: dict[int, int] = {}
    produced: dict[str, set[int]] = {}
    for node in nodes:
        dims = {id(dim.name) for dim in flat(node.dims)}
        over = {id(dim.name) for dim in flat(node.over)}
        if node.kind == "linear":
            kept = dims & over
            made = {id(dim.name) for dim in flat(node.attributes["out_features"].dims)}
            produced[node.name] = made
            for key in made:
                makers.setdefault(key, []).append(node)
            if len(over) == 1:
                for key in over:
                    readers[key] = readers.get(key, 0) + 1
            else:
                others |= over
            others |= kept
        elif node.kind not in ELEMENTWISE:
            others |= dims | over
    inner: set[int] = set()
    for node in nodes:
        if node.kind != "linear" or len(produced[node.name]) != 1:
            continue
        key = next(iter(produced[node.name]))
        of_made = flat(node.attributes["out_features"].dims)[0].name
        if key in others or key not in readers or of_made.role:
            continue
        if any({id(dim.name) for dim in flat(maker.over)} & inner for maker in makers[key]):
            continue
        inner.add(key)
        of_made.role = "intermediate"
