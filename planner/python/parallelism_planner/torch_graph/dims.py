"""Dimensions of tensors, followed through views.

PyTorch's tensors have sizes, those of a native graph named dimensions. Each axis of a tensor is therefore a product of
dimensions. A view groups them anew; where it parts one, all tensors that have the dimension see the parts, so that a linear
layer whose output is viewed as heads has heads. What must have one name is joined (`unify`, `Name.join`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Optional


class Conflict(Exception):
    """Dimensions that cannot be one, or cannot have the same name."""


class Name:
    """The name of dimensions that have to be called alike, such as channels before and after a convolution."""

    def __init__(self, role: Optional[str] = None) -> None:
        self._parent: Optional[Name] = None
        self.role = role
        self.hint: Optional[str] = None
        self.is_shared = False

    def root(self) -> Name:
        name = self
        while name._parent is not None:
            name = name._parent
        return name

    def join(self, other: Name) -> None:
        first, second = self.root(), other.root()
        if first is second:
            return
        if first.role and second.role and first.role != second.role:
            raise Conflict(f"{first.role} and {second.role}")
        second._parent = first
        first.role = first.role or second.role
        first.hint = first.hint or second.hint
        first.is_shared = True


class Dim:
    """A dimension: its size, which may be the batch's or the sequence's, and its name."""

    def __init__(self, size: int, *, symbol: Optional[str] = None, rigid: bool = False, name: Optional[Name] = None):
        self.size = size
        self.symbol = symbol
        self.rigid = rigid
        self._name = name or Name()
        self._parent: Optional[Dim] = None
        self._parts: Optional[list[Dim]] = None

    def root(self) -> Dim:
        dim = self
        while dim._parent is not None:
            dim = dim._parent
        return dim

    @property
    def name(self) -> Name:
        return self.root()._name.root()

    def flat(self) -> list[Dim]:
        """The dimension, or the parts that views have made of it."""
        root = self.root()
        return [root] if root._parts is None else flat(root._parts)

    def part(self, sizes: Sequence[int]) -> list[Dim]:
        """Parts the dimension wherever it is seen."""
        root = self.root()
        name = root.name
        if root.rigid or root.symbol or name.role or name.is_shared or root._parts is not None:
            raise Conflict(f"a dimension of size {root.size} that has to stay whole")
        root._parts = [Dim(size) for size in sizes]
        return root._parts

    def fresh(self) -> Dim:
        """Another dimension of the same size."""
        root = self.root()
        return Dim(root.size, symbol=root.symbol)


Axis = list[Dim]


def flat(dims: Iterable[Dim]) -> Axis:
    return [part for dim in dims for part in dim.flat()]


def size(axis: Iterable[Dim]) -> int:
    return prod(dim.size for dim in flat(axis))


def unify(first: Axis, second: Axis) -> None:
    """Makes two axes of one size the same dimensions, parting either where the other is finer."""
    left, right = [d for d in flat(first) if d.size > 1], [d for d in flat(second) if d.size > 1]
    while left and right:
        a, b = left.pop(0).root(), right.pop(0).root()
        if a is b:
            continue
        if a.size == b.size:
            a.name.join(b.name)
            a.symbol, a.rigid = a.symbol or b.symbol, a.rigid or b.rigid
            b._parent = a
        elif a.size % b.size == 0:
            left[:0], right[:0] = a.part([b.size, a.size // b.size]), [b]
        elif b.size % a.size == 0:
            left[:0], right[:0] = [a], b.part([a.size, b.size // a.size])
        else:
            raise Conflict(f"dimensions of {a.size} and {b.size}")
    if left or right:
        raise Conflict(f"axes of {size(first)} and {size(second)}")


def regrouped(dims: Axis, sizes: Sequence[int]) -> list[Axis]:
    """The dimensions, outermost first, as axes of these sizes."""
    rest, axes = flat(dims), []
    for index, wanted in enumerate(sizes):
        axis: Axis = []
        have = 1
        while have < wanted or (rest and rest[0].size == 1 and (wanted > 1 or not axis)):
            if not rest:
                raise Conflict("too few elements")
            dim = rest.pop(0)
            need = wanted // have
            if dim.size > need:
                if need < 1 or dim.size % need or wanted % have:
                    raise Conflict(f"a dimension of size {dim.size} for {need}")
                dim, inner = dim.part([need, dim.size // need])
                rest.insert(0, inner)
            axis.append(dim)
            have *= dim.size
        if have != wanted:
            raise Conflict(f"an axis of {wanted}")
        axes.append(axis)
    if any(dim.size > 1 for dim in rest):
        raise Conflict("too many elements")
    if axes:
        axes[-1].extend(rest)
    return axes


@dataclass
class Value:
    """A tensor: the node that makes it, the dimensions that the node puts out, and those of each of PyTorch's axes.

    A dimension of an axis that is not the node's is broadcast; one of the node's without an axis has size 1.
    """

    node: str
    dims: Axis
    axes: list[Axis] = field(default_factory=list)

    def own(self) -> set[int]:
        return {id(dim) for dim in flat(self.dims)}

    def real(self, axis: int) -> Axis:
        """The dimensions of an axis that are not broadcast."""
        own = self.own()
        return [dim for dim in flat(self.axes[axis]) if id(dim) in own]

    @property
    def shape(self) -> list[int]:
        return [size(axis) for axis in self.axes]

    def with_axes(self, axes: list[Axis]) -> Value:
        return Value(self.node, self.dims, axes)


@dataclass(frozen=True)
class Parameter:
    """A parameter that no operator has taken yet, or a part of its first dimension."""

    path: str
    key: tuple[int, int, int]
    shape: tuple[int, ...]
    is_transposed: bool = False
