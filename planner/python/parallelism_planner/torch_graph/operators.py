"""Operators of PyTorch, each with what it is in the native format: a table with a row for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union

from .dims import Dim, Parameter, Value, flat, size
from .graph import Names, Unsupported
from .products import addmm, attention, contraction, linear, matmul
from .views import (
    changed, concatenated, expand, part, permute, repeat, repeat_interleave, reparted, select, slice_, split, squeeze, stacked,
    sym_size, transpose, unbind, unsqueeze, view,
)

if TYPE_CHECKING:
    from .reader import Reader

Arguments = dict[str, Any]
Row = Callable[["Reader", Arguments], Any]

IMAGE = {-3: "channels", -2: "height", -1: "width"}


def pair(value: Union[int, Sequence[int]]) -> list[int]:
    listed = [value] if isinstance(value, int) else list(value)
    return listed * 2 if len(listed) == 1 else listed


def written(value: Union[int, Sequence[int]]) -> Any:
    """One number for both directions, or two."""
    rows, columns = pair(value)
    return rows if rows == columns else [rows, columns]


# Rows that many operators share


def same(r: Reader, a: Arguments) -> Any:
    """The first argument, unchanged."""
    return next(iter(a.values()))


def kind(name: str, **attributes: Any) -> Row:
    """An operator of one tensor that leaves its dimensions."""
    return lambda r, a: r.b.like(name, r.value(a["self"]), **attributes)


def function(name: str) -> Row:
    return kind("elementwise", function=name)


def gelu(r: Reader, a: Arguments) -> Value:
    return r.b.like("gelu" if a["approximate"] == "none" else "gelu_tanh", r.value(a["self"]))


def dropout(r: Reader, a: Arguments) -> Any:
    x = a.get("input", a.get("self"))
    return r.b.like("dropout", r.value(x), rate=a["p"]) if a["train"] and 0 < a["p"] < 1 else x


def two(name: str, constant: str) -> Row:
    """An operator of two tensors, or of a tensor and a constant."""

    def row(r: Reader, a: Arguments) -> Any:
        first, second = a["self"], a["other"]
        if not isinstance(second, (Value, Parameter)):
            return of_constant(r, first, second, name, constant)
        if not isinstance(first, (Value, Parameter)):
            return of_constant(r, second, first, name, constant)
        return r.both(name, first, second)

    return row


def of_constant(r: Reader, x: Any, constant: Any, name: str, function: str) -> Any:
    value = r.value(x)
    if isinstance(constant, (int, float)):
        if name == "multiply":
            return r.b.like("scale", value, factor=float(constant))
        if name == "divide" and value is not None and constant:
            return r.b.like("scale", value, factor=1.0 / float(constant))
    return expand(r, {"self": r.b.like("elementwise", value, function=function)})


def where(r: Reader, a: Arguments) -> Any:
    given = [each for each in (a["self"], a["other"], a["condition"]) if isinstance(each, (Value, Parameter))]
    if len(given) > 1:
        return r.both("where", given[0], given[1])
    return of_constant(r, given[0], None, "where", "masked_fill")


# Convolutions and images


def convolution(r: Reader, a: Arguments) -> Value:
    rank = len(a["weight"].shape) - 2
    if rank not in (1, 2) or not isinstance(a["weight"], Parameter):
        raise Unsupported(f"convolutions in {rank} directions, or of a weight that is computed")
    stride, dilation = list(a["stride"]), list(a["dilation"])
    padding = a["padding"]
    kernel = list(a["weight"].shape[2:])
    is_transposed = a.get("transposed", False)
    out_channels = a["weight"].shape[1] * a["groups"] if is_transposed else a["weight"].shape[0]
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilation)]
        if any(each % 2 for each in total):
            raise Unsupported("`padding=\"same\"` of an even kernel, which differs on both sides")
        padding = [each // 2 for each in total]
    x = image(r, a["input"], rank)
    lists = [stride, dilation, list(padding), kernel, list(a.get("output_padding") or [0])]
    stride, dilation, padding, kernel, added = ([*each * (rank if len(each) == 1 else 1)] for each in lists)
    if rank == 1:
        stride, dilation, kernel = [1, *stride], [1, *dilation], [1, *kernel]
        padding, added = [0, *padding], [0, *added]
    attributes = {
        "out_channels": out_channels,
        "kernel": written(kernel),
        "stride": written(stride),
        "padding": written(padding),
        "dilation": written(dilation),
        "groups": a["groups"],
        "bias": a["bias"] is not None,
    }
    if is_transposed:
        attributes["output_padding"] = written(added)
    plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True, "output_padding": 0}
    attributes = {key: value for key, value in attributes.items() if plain.get(key, "") != value or key == "bias" and not value}
    name = r.path_of(a["weight"])
    y = resized(r, x, "conv_transpose2d" if is_transposed else "conv2d", out_channels, r.out_sides(rank), name, attributes)
    y = r.b.own(y, [a["weight"], a["bias"]])
    return y if rank == 2 else y.with_axes([*y.axes[:-2], y.axes[-1]])


def transposed(r: Reader, a: Arguments) -> Value:
    return convolution(r, {**a, "transposed": True})


def image(r: Reader, x: Any, rank: int = 2) -> Value:
    """A tensor with channels, rows and columns; a sequence as one row."""
    value = r.b.tidy(r.value(x))
    if rank == 1:
        value = value.with_axes([*value.axes[:-1], [], value.axes[-1]])
        value = r.b.merged(value, [-2], ones=True)
    return r.b.roles(value, IMAGE)


def resized(
    r: Reader, x: Value, kind: str, channels: int, sides: Sequence[int], name: Union[str, None], attributes: Arguments
) -> Value:
    """The output of an operator that changes channels, rows and columns."""
    old = [x.real(axis)[0] for axis in (-3, -2, -1)]
    new = [was if r.is_kept(kind, index) and was.size == extent else Dim(extent, rigid=True, name=was.name)
           for index, (was, extent) in enumerate(zip(old, [channels, *sides]))]
    swap = {id(was): now for was, now in zip(old, new)}
    dims = [swap.get(id(dim), dim) for dim in flat(x.dims)]
    axes = [*x.axes[:-3], *([dim] for dim in new)]
    for dim in new:
        dim.name.is_shared = True
    return r.b.add(kind, [x], dims, axes, name, **attributes)


def pool(name: str) -> Row:
    def row(r: Reader, a: Arguments) -> Any:
        x = image(r, a["self"])
        if any(each != 1 for each in pair(a.get("dilation", 1))):
            raise Unsupported("a pooling with a dilation")
        attributes = {"kernel": written(a["kernel_size"])}
        if a["stride"] and written(a["stride"]) != attributes["kernel"]:
            attributes["stride"] = written(a["stride"])
        if written(a["padding"]) != 0:
            attributes["padding"] = written(a["padding"])
        if a["ceil_mode"]:
            attributes["ceil_mode"] = True
        sides = r.out_sides(2 if len(r.out_shape()) == len(x.axes) else 1)
        y = resized(r, x, name, x.real(-3)[0].size, sides, None, attributes)
        return (y, None) if r.gives_several() else y

    return row


def in_a_row(row: Row) -> Row:
    """A row of images, for sequences: images of one row."""

    def of_sequence(r: Reader, a: Arguments) -> Any:
        x = r.value(a["self"])
        wide = {
            key: [0 if key == "padding" else 1, *(each if isinstance(each, (list, tuple)) else [each])]
            for key, each in a.items()
            if key in ("kernel_size", "stride", "padding", "dilation") and each not in ([], None)
        }
        y = row(r, {**a, **wide, "self": r.b.merged(x.with_axes([*x.axes[:-1], [], x.axes[-1]]), [-2], ones=True)})
        return y.with_axes([*y.axes[:-2], y.axes[-1]])

    return of_sequence


def adaptive_pool(r: Reader, a: Arguments) -> Value:
    sides = r.out_sides(len(r.shape(a["self"])) - 2 if len(r.out_shape()) == len(r.shape(a["self"])) else 1)
    x = image(r, a["self"])
    return resized(r, x, "adaptive_average_pool2d", x.real(-3)[0].size, sides, None, {"output": written(sides)})


def upsample(mode: str) -> Row:
    def row(r: Reader, a: Arguments) -> Value:
        x, sides = image(r, a.get("self", a.get("input"))), r.out_sides(2)
        attributes = {"output": written(sides), "mode": mode}
        return resized(r, x, "upsample2d", x.real(-3)[0].size, sides, None, attributes)

    return row


def pad(r: Reader, a: Arguments) -> Any:
    x, amounts = r.value(a["self"]), list(a["pad"])
    for index in range(len(amounts) // 2):
        before, after = amounts[2 * index : 2 * index + 2]
        if before + after > 0 and min(before, after) >= 0:
            x = changed(r, x, -1 - index, "pad", before + after)
        elif before or after:
            axis, extent = -1 - index, x.shape[-1 - index]
            if max(before, after) > 0:
                raise Unsupported("padding on one side and cropping on the other")
            x = r.b.tidy(part(r, x, axis, -before, extent + after))
    return x


# Norms


def batch_norm(r: Reader, a: Arguments) -> Value:
    x = r.value(a["input"])
    sides = {axis: role for axis, role in zip(range(2, len(x.axes)), ("height", "width"))}
    x = r.b.roles(x, {1: "channels", **(sides if len(x.axes) == 4 else {})})
    return norm(r, a, x, "batch_norm", [a["weight"], a["bias"]])


def batch_norm_with_statistics(r: Reader, a: Arguments) -> tuple[Any, ...]:
    """The batch norm of a decomposed program, which also returns statistics."""
    return (batch_norm(r, a), None, None, None, None)


def group_norm(r: Reader, a: Arguments) -> Value:
    x = r.value(a["input"])
    sides = {axis: role for axis, role in zip(range(2, len(x.axes)), ("height", "width"))}
    x = r.b.roles(x, {1: "channels", **(sides if len(x.axes) == 4 else {})})
    groups = a.get("num_groups", size(x.axes[1]))
    return norm(r, a, x, "group_norm", [a["weight"], a["bias"]], groups=groups)


def layer_norm(kind: str) -> Row:
    def row(r: Reader, a: Arguments) -> Any:
        x = r.b.tidy(r.value(a["input"]))
        over = [dim for axis in x.axes[len(x.axes) - len(a["normalized_shape"]) :] for dim in flat(axis)]
        mine = [a["weight"], a["bias"]] if "bias" in a else [a["weight"]]
        y = norm(r, a, x, kind, mine, over=Names(over))
        r.b.nodes[y.node].over = over
        return (y, None, None) if r.gives_several() else y

    return row


def norm(r: Reader, a: Arguments, x: Value, kind: str, mine: list[Any], **attributes: Any) -> Value:
    mine = [each if isinstance(each, Parameter) else None for each in mine]
    for key, each in zip(("weight", "bias"), mine):
        if each is None:
            attributes[key] = False
    if a["eps"] is not None and a["eps"] != 1e-5:
        attributes["epsilon"] = a["eps"]
    names = [r.path_of(each) for each in mine if each is not None]
    return r.b.own(r.b.add(kind, [x], x.dims, x.axes, names[0] if names else None, **attributes), mine)


# Lookups


def embedding(r: Reader, a: Arguments) -> Value:
    if not isinstance(a["indices"], (Value, Parameter)):
        return fixed_rows(r, r.value(a["weight"]), a["indices"])
    return looked_up(r, r.b.tidy(r.value(a["indices"])), a["weight"], "embedding")


def fixed_rows(r: Reader, table: Value, indices: Any) -> Value:
    """Rows of a table at indices that are constants, such as positions; alike for all samples where they are."""
    shape = r.shape(indices)
    lead = 0
    while len(shape) - lead > 1 and (shape[lead] == 1 or bool((indices == indices[:1]).all())):
        indices, lead = indices[0], lead + 1
    rows = math.prod(shape[lead:])
    y = changed(r, table, 0, "take", rows - size(table.axes[0]))
    if len(shape) - lead > 1:
        y = reparted(r, y, 0, shape[lead:])
    elif rows == 1:
        y = y.with_axes([[], y.axes[1]])
    return y.with_axes([*([Dim(extent)] if extent > 1 else [] for extent in shape[:lead]), *y.axes])


def embedding_bag(r: Reader, a: Arguments) -> Any:
    indices = r.value(a["indices"])
    if len(indices.axes) == 1:
        bags = r.out_shape()[0] if isinstance(r.out_shape()[0], int) else 0
        total = size(indices.axes[0])
        if not bags or total % bags:
            raise Unsupported(f"{total} indices in {bags} bags; give example inputs with as many in each")
        batch = Dim(bags, symbol="b")
        flat(indices.axes[0])[0].root()._parts = [batch, *([Dim(total // bags)] if total > bags else [])]
        indices = indices.with_axes([[batch], [dim for dim in flat(indices.axes[0]) if dim is not batch]])
    indices, bag = r.b.single(indices, -1)
    bag.name.hint = bag.name.hint or "sequence"
    pooled = looked_up(r, indices, a["weight"], "embedding_bag", drop=1)
    return (pooled, None, None, None)


def looked_up(r: Reader, indices: Value, table: Any, kind: str, drop: int = 0) -> Value:
    if not isinstance(table, Parameter) or len(table.shape) != 2:
        raise Unsupported("a lookup in a table that is computed")
    rows, width = table.shape
    made = Dim(width)
    made.name.is_shared = True
    made.name.hint = "hidden"
    dims = [*flat(indices.dims)[: len(flat(indices.dims)) - drop], made]
    axes = [*indices.axes[: len(indices.axes) - drop], [made]]
    attributes = {"num_embeddings": rows, "embedding_dim": width, "out_dim": Names([made], is_one=True)}
    return r.b.own(r.b.add(kind, [indices], dims, axes, r.path_of(table), **attributes), [table])


def index(r: Reader, a: Arguments) -> Value:
    """Elements at fixed indices along neighbouring axes, or rows of a table."""
    x, indices = a["self"], a["indices"]
    used = [at for at, each in enumerate(indices) if each is not None]
    if isinstance(x, Parameter) and len(x.shape) == 2 and used == [0]:
        return embedding(r, {"indices": indices[0], "weight": x})
    if any(isinstance(each, (Value, Parameter)) for each in indices) or used != list(range(used[0], used[-1] + 1)):
        raise Unsupported("indices that are computed")
    value = r.value(x)
    first, last = used[0], used[-1]
    joined = [*value.axes[:first], [d for axis in value.axes[first : last + 1] for d in flat(axis)], *value.axes[last + 1 :]]
    value = r.b.merged(value.with_axes(joined), [first])
    shape = r.broadcast_shape([indices[at] for at in used])
    taken = math.prod(shape)
    y = changed(r, value, first, "take", taken - size(value.axes[first]))
    new = y.axes[first]
    axes = [new] if len(shape) == 1 else None
    if axes is None:
        y = reparted(r, y, first, shape)
        return y
    return y.with_axes([*y.axes[:first], *axes, *y.axes[first + 1 :]])


def taken(r: Reader, a: Arguments) -> Value:
    """Rolled or flipped elements, or some of an axis."""
    x = r.value(a["self"])
    dims = a["dims"] if "dims" in a else a["dim"]
    dims = [dims] if isinstance(dims, int) else list(dims)
    for dim in dims:
        x = changed(r, x, dim, "take", r.out_shape()[dim % len(x.axes)] - x.shape[dim])
    return x


# Reductions and softmax


def reduction(name: str) -> Row:
    def row(r: Reader, a: Arguments) -> Any:
        x = r.b.tidy(r.value(a["self"]))
        given: Any = a.get("dim")
        every = range(len(x.axes))
        dims = [dim % len(x.axes) for dim in (every if given in (None, []) else [given] if isinstance(given, int) else given)]
        over = [d for dim in dims for d in x.real(dim)]
        gone = {id(dim) for dim in over}
        kept = [dim for dim in flat(x.dims) if id(dim) not in gone]
        keep = a.get("keepdim", False)
        axes = [[] if i in dims else axis for i, axis in enumerate(x.axes) if keep or i not in dims]
        if not over:
            return x.with_axes(axes)
        y = r.b.add("reduce", [x], kept, axes, function=name, over=Names(over))
        r.b.nodes[y.node].over = over
        return (y, y) if r.gives_several() else y

    return row


def softmax(r: Reader, a: Arguments) -> Value:
    x, over = r.b.single(r.value(a["self"]), a["dim"])
    return r.b.add("softmax", [x], x.dims, x.axes, over=Names([over], is_one=True))


def mean_loss(name: str) -> Row:
    def row(r: Reader, a: Arguments) -> Value:
        x, target = r.value(a["self"]), a.get("target")
        # A target that is computed has a gradient too: the loss is then of a difference.
        if name == "mean_squared_error" and isinstance(target, Value) and r.b.nodes[target.node].kind != "input":
            x = r.value(r.both("subtract", x, target))
        x = r.b.tidy(x)
        attributes: Arguments = {}
        if name == "cross_entropy":
            x, classes = r.b.single(x, 1 if len(x.axes) > 1 else 0)
            attributes["over"] = Names([classes], is_one=True)
        return r.b.add(name, [x], [], [], **attributes)

    return row


def power(r: Reader, a: Arguments) -> Any:
    if isinstance(a["exponent"], (Value, Parameter)):
        raise Unsupported("a power whose exponent is computed")
    return r.b.like("elementwise", r.value(a["self"]), function="power")


def binary_cross_entropy(r: Reader, a: Arguments) -> Any:
    x = r.b.like("elementwise", r.value(a["self"]), function="binary_cross_entropy")
    return x if r.out_shape() else ROWS["mean"](r, {"self": x})


def glu(r: Reader, a: Arguments) -> Value:
    value, gate = split(r, {"self": r.value(a["self"]), "dim": a["dim"], "chunks": 2})
    gate, value = r.b.aligned([gate, value])
    return r.b.add("gated_activation", [gate, r.b.in_order(value, gate.dims)], gate.dims, gate.axes, activation="sigmoid")


#: Rows by the operator's name, without its overload and the underscore of those that work in place.
ROWS: dict[str, Row] = {
    **dict.fromkeys(
        "alias clone contiguous detach to _to_copy lift_fresh_copy type_as float _assert_tensor_metadata".split(),
        same,
    ),
    **{name: kind(name) for name in ("relu", "silu", "tanh", "sigmoid")},
    "gelu": gelu,
    **{
        name: function(ours)
        for name, ours in {
            "abs": "abs", "cos": "cos", "elu": "elu", "selu": "elu", "celu": "elu", "erf": "erf", "exp": "exp",
            "hardsigmoid": "hard_sigmoid", "hardswish": "hard_swish", "hardtanh": "hard_tanh", "relu6": "hard_tanh",
            "clamp": "hard_tanh", "clamp_min": "hard_tanh", "clamp_max": "hard_tanh", "leaky_relu": "leaky_relu",
            "log": "log", "log1p": "log", "log_sigmoid": "softplus", "masked_fill": "masked_fill", "mish": "mish",
            "neg": "negative", "square": "power", "reciprocal": "reciprocal", "rsqrt": "rsqrt",
            "sin": "sin", "softplus": "softplus", "sqrt": "sqrt",
        }.items()
    },
    "add": two("add", "add_constant"), "sub": two("subtract", "add_constant"), "rsub": two("subtract", "add_constant"),
    "mul": two("multiply", "multiply_constant"), "div": two("divide", "multiply_constant"),
    "maximum": two("maximum", "hard_tanh"), "minimum": two("minimum", "hard_tanh"),
    **dict.fromkeys(
        "eq ne lt le gt ge logical_and logical_or bitwise_and bitwise_or __and__ __or__".split(),
        two("compare", "compare_constant"),
    ),
    "pow": power,
    "logical_not": function("compare_constant"), "bitwise_not": function("compare_constant"), "where": where,
    "dropout": dropout, "feature_dropout": dropout,
    "convolution": convolution, "conv1d": convolution, "conv2d": convolution, "conv3d": convolution,
    "conv_transpose1d": transposed, "conv_transpose2d": transposed, "conv_transpose3d": transposed,
    "max_pool2d": pool("max_pool2d"), "avg_pool2d": pool("average_pool2d"),
    "max_pool2d_with_indices": pool("max_pool2d"), "max_pool1d": in_a_row(pool("max_pool2d")),
    "avg_pool1d": in_a_row(pool("average_pool2d")), "adaptive_avg_pool1d": in_a_row(adaptive_pool),
    "adaptive_avg_pool2d": adaptive_pool, "pad": pad, "constant_pad_nd": pad,
    "upsample_nearest2d": upsample("nearest"), "_upsample_nearest_exact2d": upsample("nearest"),
    "upsample_bilinear2d": upsample("bilinear"), "upsample_bicubic2d": upsample("bicubic"),
    "batch_norm": batch_norm, "_native_batch_norm_legit_functional": batch_norm_with_statistics, "group_norm": group_norm, "instance_norm": group_norm,
    "layer_norm": layer_norm("layer_norm"), "native_layer_norm": layer_norm("layer_norm"), "rms_norm": layer_norm("rms_norm"),
    "embedding": embedding, "embedding_bag": embedding_bag, "_embedding_bag": embedding_bag,
    "index": index, "index_select": taken, "roll": taken, "flip": taken,
    "mean": reduction("mean"), "sum": reduction("sum"), "amax": reduction("max"), "max": reduction("max"), "linalg_vector_norm": reduction("norm"),
    "softmax": softmax, "_softmax": softmax, "log_softmax": softmax,
    "cross_entropy_loss": mean_loss("cross_entropy"), "nll_loss_nd": mean_loss("cross_entropy"),
    "mse_loss": mean_loss("mean_squared_error"),
    "binary_cross_entropy": binary_cross_entropy, "binary_cross_entropy_with_logits": binary_cross_entropy,
    "linear": linear, "addmm": addmm, "matmul": matmul, "mm": matmul, "bmm": matmul, "einsum": contraction,
    "scaled_dot_product_attention": attention,
    **dict.fromkeys("view reshape flatten unflatten _unsafe_view view_as reshape_as".split(), view),
    "permute": permute, "transpose": transpose, "swapaxes": transpose, "swapdims": transpose, "t": transpose,
    "numpy_T": transpose, "unsqueeze": unsqueeze, "squeeze": squeeze,
    "expand": expand, "expand_as": expand, "repeat": repeat, "repeat_interleave": repeat_interleave,
    "select": select, "slice": slice_, "split": split, "split_with_sizes": split, "chunk": split, "unbind": unbind,
    "cat": concatenated, "stack": stacked, "sym_size": sym_size, "glu": glu,
}
