"""The native graph under construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from .dims import Axis, Conflict, Dim, Name, Parameter, Value, flat, size, unify
from .names import name_dims


@dataclass(frozen=True)
class Names:
    """An attribute: the names of dimensions."""

    dims: Axis
    is_one: bool = False


@dataclass(frozen=True)
class Sizes:
    """An attribute: the sizes of dimensions."""

    dims: Axis
    is_one: bool = False


@dataclass
class Node:
    """An operator with the nodes that it reads, and the dimensions that it puts out."""

    name: str
    kind: str
    attributes: dict[str, Any]
    inputs: list[str]
    dims: Axis
    tied_to: Optional[str] = None
    #: The first input's dimensions that a linear layer sums over.
    over: Axis = field(default_factory=list)


class Unsupported(Exception):
    """What the native format cannot say of an operator."""


class Builder:
    """Nodes, made in the order in which they compute."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        #: The node that first took each parameter.
        self.owners: dict[tuple[int, int, int], str] = {}
        self.place = ""
        #: Parts that were made of a fused linear layer, by its node: first feature and node.
        self.parts: dict[str, dict[tuple[int, int], str]] = {}

    def name(self, wanted: Optional[str] = None) -> str:
        wanted, number = wanted or self.place or "op", 1
        name = wanted
        while name in self.nodes:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def add(
        self, kind: str, inputs: Sequence[Value], dims: Axis, axes: list[Axis], name: Optional[str] = None, /, **attributes: Any
    ) -> Value:
        node = Node(self.name(name), kind, attributes, [value.node for value in inputs], dims)
        self.nodes[node.name] = node
        return Value(node.name, dims, axes)

    def like(self, kind: str, value: Value, /, **attributes: Any) -> Value:
        """An operator that leaves the dimensions as they are."""
        value = self.tidy(value)
        return self.add(kind, [value], value.dims, value.axes, **attributes)

    def own(self, value: Value, parameters: Iterable[Optional[Parameter]], name: str = "") -> Value:
        """Notes whose parameters a node's are; those that an earlier node has are tied to it."""
        keys = [parameter.key for parameter in parameters if parameter is not None]
        owners = {self.owners[key] for key in keys if key in self.owners}
        if owners and len(owners) > 1:
            raise Unsupported(f"its parameters are those of {len(owners)} other operators")
        if owners:
            owner = owners.pop()
            own = self.nodes[owner].attributes.get("bias", False)
            if any(key not in self.owners for key in keys) and own:
                raise Unsupported(f"it shares its weight with `{owner}`, but not its bias")
            self.nodes[value.node].tied_to = owner
        for key in keys:
            self.owners.setdefault(key, value.node)
        return value

    def parameter(self, parameter: Parameter) -> Value:
        """A parameter as a tensor."""
        axes = [[Dim(extent)] if extent > 1 else [] for extent in parameter.shape]
        if parameter.is_transposed:
            axes = axes[::-1]
        dims = [dim for axis in axes for dim in axis] or [Dim(1, rigid=True)]
        value = self.add("parameter", [], dims, axes, parameter.path, dims=Names(dims), shape=Sizes(dims))
        return self.own(value, [parameter])

    # Views

    def reshape(self, value: Value, axes: list[tuple[Axis, Axis]]) -> Value:
        """A view in which each axis, of the dimensions that are given first, has those that are given second."""
        dims = [dim for _, new in axes for dim in new]
        return self.add(
            "reshape", [value], dims, [new for _, new in axes], f"{self.place}.view", dims=Names(dims), shape=Sizes(dims)
        )

    def tidy(self, value: Value) -> Value:
        """The value without dimensions of size 1 that no axis has."""
        seen = {id(dim) for axis in value.axes for dim in flat(axis)}
        if all(id(dim) in seen for dim in flat(value.dims)):
            return value
        own = value.own()
        kept = [[dim for dim in flat(axis) if id(dim) in own] for axis in value.axes]
        plain = self.reshape(value, [(axis, axis) for axis in kept])
        return plain.with_axes(value.axes)

    def merged(self, value: Value, wanted: Iterable[int], ones: bool = False) -> Value:
        """The value with each of these axes as one new dimension; axes of size 1 too where `ones`."""
        wanted, own = {axis % len(value.axes) for axis in wanted}, value.own()
        pairs: list[tuple[Axis, Axis]] = []
        for index, axis in enumerate(value.axes):
            real = [dim for dim in flat(axis) if id(dim) in own]
            if index not in wanted:
                pairs.append((real, real))
                continue
            if len(real) < len(flat(axis)):
                raise Unsupported("a broadcast dimension would have to be written out")
            only = [dim for dim in real if dim.size > 1] or real
            if any(dim.symbol for dim in only) and len(only) > 1:
                raise Unsupported("the batch would have to be joined with another dimension")
            new = only[0].fresh() if len(only) == 1 else Dim(size(real))
            pairs.append((real, [new] if new.size > 1 or new.symbol or ones else []))
        plain = self.reshape(value, pairs)
        axes = [pair[1] if index in wanted else value.axes[index] for index, pair in enumerate(pairs)]
        return plain.with_axes(axes)

    def single(self, value: Value, axis: int) -> tuple[Value, Dim]:
        """The value with an axis as one dimension, and that dimension."""
        value = self.tidy(value)
        real = value.real(axis)
        if len(real) != 1 or len(flat(value.axes[axis])) != 1:
            value = self.merged(value, [axis], ones=True)
            real = value.real(axis)
        return value, real[0]

    def roles(self, value: Value, roles: Mapping[int, str]) -> Value:
        """The value with axes that are dimensions of these names."""
        value = self.tidy(value)
        roles = {axis % len(value.axes): role for axis, role in roles.items()}
        wrong, met = [], set()
        for axis, role in roles.items():
            real = value.real(axis)
            fits = len(real) == 1 and len(flat(value.axes[axis])) == 1 and real[0].name.role in (None, role)
            if not fits or id(real[0].name) in met:
                wrong.append(axis)
            else:
                met.add(id(real[0].name))
        clash = [i for i, axis in enumerate(value.axes) if i not in roles for d in flat(axis) if d.name.role in roles.values()]
        if wrong or clash:
            value = self.merged(value, [*roles, *clash], ones=True)
        for axis, role in roles.items():
            dim = value.real(axis)[0]
            dim.name.join(Name(role))
            dim.root().rigid = True
        return value

    # Several tensors

    def aligned(self, values: Sequence[Value], apart: Sequence[int] = ()) -> list[Value]:
        """Values whose axes, from the last one on, are the same dimensions where they have the same size; but for the
        axes `apart`, counted from the end."""
        rank = max(len(value.axes) for value in values)
        out = [self.tidy(value.with_axes([[] for _ in range(rank - len(value.axes))] + value.axes)) for value in values]
        for axis in range(rank):
            if axis - rank in apart:
                continue
            sizes = {size(value.axes[axis]) for value in out}
            if len(sizes) > 1:
                out = [self.without_ones(value, axis) for value in out]
            whole = [index for index, value in enumerate(out) if size(value.axes[axis]) > 1]
            for index in whole[1:]:
                self.join(out, whole[0], index, axis)
            if sizes == {1}:
                out = [self.without_ones(value, axis) for value in out] if rank > 1 else out
        return out

    def without_ones(self, value: Value, axis: int) -> Value:
        """The value without its dimensions of size 1 along an axis."""
        if size(value.axes[axis]) > 1 or any(dim.symbol for dim in flat(value.axes[axis])):
            return value
        axes = [[] if index == axis else each for index, each in enumerate(value.axes)]
        return self.tidy(value.with_axes(axes))

    def join(self, values: list[Value], first: int, second: int, axis: int) -> None:
        """Makes an axis of two values the same dimensions, renaming those of the second where that is needed."""
        a, b = values[first], values[second]
        if [id(dim) for dim in flat(a.axes[axis])] == [id(dim) for dim in flat(b.axes[axis])]:
            return
        elsewhere = {id(d.root()) for v in (a, b) for i, other in enumerate(v.axes) if i != axis for d in flat(other)}
        names = {id(d.name) for v in (a, b) for i, other in enumerate(v.axes) if i != axis for d in flat(other)}
        both = flat(a.axes[axis]) + flat(b.axes[axis])
        is_twice = any(id(dim) in elsewhere or id(dim.name) in names for dim in both)
        if not is_twice:
            try:
                unify(a.axes[axis], b.axes[axis])
                return
            except Conflict:
                pass
        for index in (second, first):
            values[index] = self.merged(values[index], [axis])
            try:
                unify(values[first].axes[axis], values[second].axes[axis])
                return
            except Conflict:
                continue
        raise Unsupported("its inputs cannot be lined up")

    def in_order(self, value: Value, like: Axis) -> Value:
        """The value with its dimensions in this order."""
        order = [id(dim) for dim in flat(like)]
        own = flat(value.dims)
        if sorted(order) != sorted(id(dim) for dim in own) or order == [id(dim) for dim in own]:
            return value
        dims = flat(like)
        moved = self.add("reshape", [value], dims, value.axes, f"{self.place}.view", dims=Names(dims), shape=Sizes(dims))
        return moved

    # The result

    def finished(self, outputs: Iterable[str]) -> list[Node]:
        """The nodes that the outputs need, in order."""
        needed, pending = set(), list(outputs)
        while pending:
            name = pending.pop()
            if name not in needed:
                needed.add(name)
                pending.extend(self.nodes[name].inputs)
        return self.late_sources([node for name, node in self.nodes.items() if name in needed])

    @staticmethod
    def late_sources(nodes: list[Node]) -> list[Node]:
        """The nodes with those that have no inputs right before their first use, so that blocks can be cut before."""
        sources = {node.name: node for node in nodes if not node.inputs}
        ordered: list[Node] = []
        for node in nodes:
            if not node.inputs:
                continue
            ordered.extend(sources.pop(name) for name in node.inputs if name in sources)
            ordered.append(node)
        return ordered

    def json(self, name: str, description: str, outputs: Iterable[str]) -> dict[str, Any]:
        """The graph in the native format."""
        nodes = self.finished(outputs)
        self.settle_ties(nodes)
        names = name_dims(nodes)
        edges = [{"from": source, "to": node.name} for node in nodes for source in node.inputs]
        return {
            "format": "planner-graph",
            "version": 1,
            "name": name,
            "description": description,
            "nodes": [as_json(node, names) for node in nodes],
            "edges": edges,
        }

    def settle_ties(self, nodes: list[Node]) -> None:
        """Lets the first of the nodes that are left own what they share."""
        left = {node.name: node for node in nodes}
        for node in nodes:
            owner = node.tied_to
            if owner is not None and owner not in left:
                node.tied_to = None
                for other in nodes:
                    if other is not node and other.tied_to == owner:
                        other.tied_to = node.name


def as_json(node: Node, names: Mapping[int, str]) -> dict[str, Any]:
    written: dict[str, Any] = {"name": node.name, "kind": node.kind}
    for key, value in node.attributes.items():
        written[key] = attribute(value, names)
    if node.tied_to is not None:
        written["tied_to"] = node.tied_to
    return written


def attribute(value: Any, names: Mapping[int, str]) -> Any:
    if not isinstance(value, (Names, Sizes)):
        return value
    listed: list[Union[str, int]] = [
        names[id(dim)] if isinstance(value, Names) else (dim.symbol or dim.size) for dim in flat(value.dims)
    ]
    return listed[0] if value.is_one and len(listed) == 1 else listed
