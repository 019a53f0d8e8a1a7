"""Views: axes of the same dimensions, parts of them, and tensors joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .dims import Axis, Conflict, Dim, Parameter, Value, flat, regrouped, size
from .graph import Names, Unsupported

if TYPE_CHECKING:
    from .reader import Reader

Arguments = dict[str, Any]


def changed(r: Reader, x: Value, axis: int, kind: str, more: int, **attributes: Any) -> Value:
    """The value with more or fewer elements along an axis."""
    x, old = r.b.single(x, axis)
    if old.symbol:
        raise Unsupported("it changes the size of the batch")
    old.root().rigid = True
    new = Dim(old.size + more, rigid=True, name=old.name)
    new.name.is_shared = True
    dims = [new if dim is old else dim for dim in flat(x.dims)]
    axes = [[new] if index == axis % len(x.axes) else each for index, each in enumerate(x.axes)]
    return r.b.add(kind, [x], dims, axes, dim=Names([old], is_one=True), size=new.size, **attributes)


def reparted(r: Reader, y: Value, axis: int, shape: Sequence[int]) -> Value:
    """The value with an axis in parts."""
    parts = [[Dim(extent)] if extent > 1 else [] for extent in shape]
    pairs = [(each, each) for each in ([d for d in y.real(i)] for i in range(len(y.axes)))]
    old = y.real(axis)
    pairs[axis] = (old, [dim for part in parts for dim in part])
    plain = r.b.reshape(y, pairs)
    return plain.with_axes([*y.axes[:axis], *parts, *y.axes[axis + 1 :]])


def view(r: Reader, a: Arguments) -> Any:
    x = a["self"]
    shape = r.out_shape()
    if isinstance(x, Parameter):
        if tuple(shape) == x.shape and not x.is_transposed:
            return x
        x = r.value(x)
    if list(shape) == x.shape:
        return x
    joined = len(shape) == 2 and len(flat(x.dims)) > 2 and flat(x.axes[0]) == flat(x.dims)[:1]
    if joined and flat(x.dims)[0].symbol == "b" and shape[0] == x.shape[0] and [d for ax in x.axes for d in flat(ax)] == flat(x.dims):
        features = Dim(shape[1], rigid=True)
        features.name.hint = "features"
        return r.b.add("flatten", [x], [flat(x.dims)[0], features], [x.axes[0], [features]])
    whole = [dim for axis in x.axes for dim in flat(axis)]
    try:
        return x.with_axes(regrouped(whole, shape))
    except Conflict:
        return anew(r, x, shape)


def anew(r: Reader, x: Value, shape: Sequence[int]) -> Value:
    """A view whose dimensions are new ones, but for the batch, which stays the first."""
    own = x.own()
    whole = [dim for axis in x.axes for dim in flat(axis)]
    if any(id(dim) not in own for dim in whole):
        raise Unsupported("a view of a broadcast tensor")
    symbols = [dim for dim in whole if dim.symbol]
    axes = [[Dim(extent)] if extent > 1 else [] for extent in shape]
    if symbols:
        first = symbols[0]
        if len(symbols) > 1 or whole[0] is not first or shape[0] % first.size:
            raise Unsupported("a view that moves the batch")
        rest = shape[0] // first.size
        axes[0] = [first, *([Dim(rest)] if rest > 1 else [])]
    plain = r.b.reshape(r.b.tidy(x), [([], axis) for axis in axes])
    return plain


def permute(r: Reader, a: Arguments) -> Any:
    x = r.value(a["self"])
    return x.with_axes([x.axes[dim] for dim in a["dims"]])


def transpose(r: Reader, a: Arguments) -> Any:
    x = a["self"]
    if isinstance(x, Parameter) and len(x.shape) == 2:
        return Parameter(x.path, x.key, x.shape, not x.is_transposed)
    x = r.value(x)
    axes = list(x.axes)
    if len(axes) < 2:
        return x
    first: Any = a.get("dim0", a.get("axis0", 0))
    second: Any = a.get("dim1", a.get("axis1", 1))
    axes[first], axes[second] = axes[second], axes[first]
    return x.with_axes(axes)


def unsqueeze(r: Reader, a: Arguments) -> Any:
    x, at = r.value(a["self"]), a["dim"]
    at = at if at >= 0 else at + len(x.axes) + 1
    return x.with_axes([*x.axes[:at], [], *x.axes[at:]])


def squeeze(r: Reader, a: Arguments) -> Any:
    x = r.value(a["self"])
    dims = a.get("dim", range(len(x.axes)))
    gone = {dim % len(x.axes) for dim in ([dims] if isinstance(dims, int) else dims)}
    return x.with_axes([axis for at, axis in enumerate(x.axes) if at not in gone or size(axis) > 1])


def expand(r: Reader, a: Arguments) -> Any:
    x, shape = r.value(a["self"]), r.out_shape()
    axes: list[Axis] = [[] for _ in range(len(shape) - len(x.axes))] + x.axes
    return x.with_axes([[Dim(n)] if n > 1 and size(axis) == 1 else axis for axis, n in zip(axes, shape)])


def repeat(r: Reader, a: Arguments) -> Any:
    x, shape = r.value(a["self"]), r.out_shape()
    axes: list[Axis] = [[] for _ in range(len(shape) - len(x.axes))] + x.axes
    return x.with_axes([[Dim(n // size(axis)), *axis] if n > size(axis) else axis for axis, n in zip(axes, shape)])


def repeat_interleave(r: Reader, a: Arguments) -> Any:
    x = r.value(a["self"])
    axes = list(x.axes)
    axes[a["dim"]] = [*axes[a["dim"]], Dim(a["repeats"])]
    return x.with_axes(axes)


def select(r: Reader, a: Arguments) -> Any:
    x, at = r.value(a["self"]), a["dim"]
    at, number = at % len(x.axes), a["index"] % size(x.axes[a["dim"]])
    if at == 1 and number == 0 and len(x.axes) == 3 and flat(x.axes[0])[:1] and flat(x.axes[0])[0].symbol == "b":
        one = r.b.roles(x, {1: "sequence"})
        dims = [dim for dim in flat(one.dims) if dim is not one.real(1)[0]]
        return r.b.add("first_token", [one], dims, [one.axes[0], one.axes[2]])
    y = part(r, x, at, number, number + 1)
    return y.with_axes([*y.axes[:at], *y.axes[at + 1 :]])


def slice_(r: Reader, a: Arguments) -> Any:
    x, at = a["self"], a["dim"]
    whole = x.shape[at]
    start = 0 if a["start"] is None else a["start"]
    end = whole if a["end"] is None else a["end"]
    start, end = (max(0, min(whole, each + whole if each < 0 else each)) for each in (start, end))
    return part(r, x, at, start, end, a["step"])


def split(r: Reader, a: Arguments) -> Any:
    x, at = a["self"], a.get("dim", 0)
    whole = x.shape[at]
    if "chunks" in a:
        sizes = [math.ceil(whole / a["chunks"])]
    else:
        sizes = a["split_size"] if "split_size" in a else a["split_sizes"]
        sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    if len(sizes) == 1:
        sizes = [min(sizes[0], whole - start) for start in range(0, whole, sizes[0])]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return tuple(part(r, x, at, start, start + extent) for start, extent in zip(starts, sizes))


def unbind(r: Reader, a: Arguments) -> Any:
    x, at = r.value(a["self"]), a.get("dim", 0)
    return tuple(select(r, {"self": x, "dim": at, "index": number}) for number in range(size(x.axes[at])))


def part(r: Reader, x: Any, at: int, start: int, end: int, step: int = 1) -> Any:
    """Some elements of an axis: of a linear layer's output, a linear layer of its own."""
    if isinstance(x, Parameter):
        if at % len(x.shape) == 0 and step == 1 and not x.is_transposed:
            if (start, end) == (0, x.shape[0]):
                return x
            key = (x.key[0], x.key[1] + start, x.key[1] + end)
            return Parameter(x.path, key, (end - start, *x.shape[1:]))
        x = r.value(x)
    if (start, end, step) == (0, size(x.axes[at]), 1):
        return x
    axis = [dim for dim in flat(x.axes[at]) if dim.size > 1]
    if not axis:
        return x
    if step == 1 and len(axis) == 1 and (own := r.part_of_linear(x, at, axis[0], start, end)) is not None:
        return own
    number = -(-(end - start) // step)
    return changed(r, x, at, "slice", number - size(axis), **({"start": start} if start else {}))


def concatenated(r: Reader, a: Arguments) -> Value:
    tensors = [each for each in a["tensors"] if r.shape(each) != [0]]
    if not all(isinstance(each, (Value, Parameter)) for each in tensors):
        raise Unsupported("a constant joined to a tensor")
    if len(tensors) == 1:
        return r.value(tensors[0])
    at = a["dim"] if a["dim"] < 0 else a["dim"] - len(r.shape(tensors[0]))
    values = r.b.aligned([r.value(each) for each in tensors], apart=[at])
    is_row = len(values) == 2 and at == -2 and len(values[1].axes) == 3 and size(values[0].axes[-2]) == 1
    if is_row and (row := r.row_before(values[0], values[1])) is not None:
        return row
    ready = [r.b.single(value, at) for value in values]
    joined = Dim(sum(dim.size for _, dim in ready), rigid=True, name=ready[0][1].name)
    for _, dim in ready:
        joined.name.join(dim.name)
        dim.root().rigid = True
    joined.name.is_shared = True
    fullest = max((value for value, _ in ready), key=lambda value: len(flat(value.dims)))
    own = {id(dim) for _, dim in ready}
    dims = [joined if id(dim) in own else dim for dim in flat(fullest.dims)]
    axes = [*fullest.axes]
    axes[at] = [joined]
    return r.b.add("concat", [value for value, _ in ready], dims, axes, over=Names([joined], is_one=True))


def stacked(r: Reader, a: Arguments) -> Value:
    tensors = [unsqueeze(r, {"self": each, "dim": a["dim"]}) for each in a["tensors"]]
    at = a["dim"] if a["dim"] >= 0 else a["dim"] + len(tensors[0].axes)
    return concatenated(r, {"tensors": tensors, "dim": at})


def sym_size(r: Reader, a: Arguments) -> int:
    return r.shape(a["self"])[a["dim"]]
