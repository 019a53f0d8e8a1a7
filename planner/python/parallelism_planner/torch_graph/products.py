"""Products: linear layers, products of two tensors, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from .dims import Axis, Dim, Parameter, Value, flat, regrouped, size
from .graph import Names, Sizes, Unsupported

if TYPE_CHECKING:
    from .reader import Reader

Arguments = dict[str, Any]


def linear(r: Reader, a: Arguments) -> Value:
    """`y = x W + b`, with the weight as PyTorch keeps it: outputs by inputs."""
    x, weight, bias = a["input"], a["weight"], a.get("bias")
    if not isinstance(weight, Parameter) or not (bias is None or isinstance(bias, Parameter)):
        x = r.value(x)
        y = product(r, x.with_axes([*x.axes[:-1], [], x.axes[-1]]), r.value(weight))
        y = y.with_axes([*y.axes[:-2], y.axes[-1]])
        return y if bias is None else r.both("add", y, bias)
    outputs = weight.shape[1] if weight.is_transposed else weight.shape[0]
    x = r.b.tidy(r.value(x))
    over = x.real(-1)
    if len(over) < len(flat(x.axes[-1])):
        raise Unsupported("a linear layer of a broadcast tensor")
    if not over:
        x, only = r.b.single(x, -1)
        over = [only]
    made = Dim(outputs, rigid=outputs == 1)
    y = with_linear(r, x, over, [made], [*x.axes[:-1], [made]], bias is not None, r.path_of(weight))
    return r.b.own(y, [weight, bias])


def with_linear(
    r: Reader, x: Value, over: Axis, made: Axis, axes: list[Axis], bias: bool, name: Optional[str]
) -> Value:
    summed = {id(dim) for dim in over}
    dims = [dim for dim in flat(x.dims) if id(dim) not in summed] + made
    attributes: Arguments = {"out_features": Sizes(made), "out_dims": Names(made), "over": Names(over)}
    if not bias:
        attributes["bias"] = False
    y = r.b.add("linear", [x], dims, axes, name, **attributes)
    r.b.nodes[y.node].over = over
    return y


def part_of_linear(r: Reader, x: Value, at: int, dim: Dim, start: int, end: int) -> Optional[Value]:
    """Some outputs of a linear layer as a layer of their own: queries, keys and values of a fused projection."""
    node = r.b.nodes[x.node]
    if node.kind != "linear" or node.tied_to is not None or node.name in r.whole:
        return None
    made = flat(node.attributes["out_features"].dims)
    if all(each is not dim for each in made) or dim.name.role is not None:
        return None
    part = [Dim(end - start)] if end - start > 1 else []
    copies = {id(each): part if each is dim else [each.fresh()] for each in made}
    new = [copy for each in made for copy in copies[id(each)]] or [Dim(1, rigid=True)]
    axes = [[copy for each in flat(axis) for copy in copies.get(id(each), [each])] for axis in x.axes]
    source = Value(node.inputs[0], r.b.nodes[node.inputs[0]].dims, [])
    number = start // (end - start)
    bias = node.attributes.get("bias", True)
    y = with_linear(r, source, node.over, new, axes, bias, f"{node.name}.{number}")
    r.b.parts.setdefault(node.name, {})[(start, end)] = y.node
    r.part_sizes[node.name] = dim.size
    return y


def matmul(r: Reader, a: Arguments) -> Any:
    first, second = a["self"], a.get("other", a.get("mat2"))
    if isinstance(second, Parameter) and len(second.shape) == 2 and not isinstance(first, Parameter):
        shape = second.shape
        flipped = Parameter(second.path, second.key, shape, not second.is_transposed)
        return linear(r, {"input": first, "weight": flipped})
    x, y = r.value(first), r.value(second)
    is_row, is_column = len(x.axes) == 1, len(y.axes) == 1
    x = x.with_axes([[], *x.axes]) if is_row else x
    y = y.with_axes([[], *y.axes]) if is_column else y.with_axes([*y.axes[:-2], y.axes[-1], y.axes[-2]])
    out = product(r, x, y)
    axes = out.axes[:-2] + ([] if is_row else [out.axes[-2]]) + ([] if is_column else [out.axes[-1]])
    return out.with_axes(axes)


def addmm(r: Reader, a: Arguments) -> Any:
    weight = a["mat2"]
    if isinstance(weight, Parameter) and isinstance(a["self"], Parameter):
        flipped = Parameter(weight.path, weight.key, weight.shape, not weight.is_transposed)
        return linear(r, {"input": a["mat1"], "weight": flipped, "bias": a["self"]})
    return r.both("add", matmul(r, {"self": a["mat1"], "other": weight}), a["self"])


def product(r: Reader, x: Value, y: Value) -> Value:
    """The product of `[.., m, k]` and `[.., n, k]`: `[.., m, n]`."""
    x, y = r.b.aligned([x, y], apart=[-1, -2])
    of_x = {id(dim.name) for axis in x.axes for dim in flat(axis)}
    others = {id(dim.name) for axis in x.axes[:-1] for dim in flat(axis)}
    if any(id(dim.name) in others for dim in flat(y.axes[-2])) or any(id(d.name) in of_x for d in flat(y.axes[-2])):
        y = r.b.merged(y, [-2])
        for dim in flat(y.axes[-2]):
            dim.name.hint = dim.name.hint or "context"
    pair = [x, y]
    r.b.join(pair, 0, 1, len(x.axes) - 1)
    x, y = pair
    over = x.real(-1)
    if [id(d) for d in over] != [id(d) for d in y.real(-1)]:
        raise Unsupported("a sum over a broadcast dimension")
    if not over:
        x, y = (r.b.merged(each, [-1], ones=True) for each in (x, y))
        y.real(-1)[0].name.join(x.real(-1)[0].name)
        over = x.real(-1)
    summed, own = {id(dim) for dim in over}, x.own()
    dims = [dim for dim in flat(x.dims) if id(dim) not in summed]
    dims += [dim for dim in flat(y.dims) if id(dim) not in own]
    batch = [a if size(a) >= size(b) else b for a, b in zip(x.axes[:-2], y.axes[:-2])]
    for dim in (d for axis in batch for d in flat(axis)):
        if not dim.symbol and r.b.nodes[x.node].kind != "parameter":
            dim.name.hint = dim.name.hint or "heads"
    out = r.b.add("product", [x, y], dims, [*batch, x.axes[-2], y.axes[-2]], over=Names(over))
    r.b.nodes[out.node].over = over
    return out


def contraction(r: Reader, a: Arguments) -> Value:
    """`einsum` of two tensors."""
    equation = a["equation"].replace(" ", "")
    if "->" not in equation or "." in equation or len(a["tensors"]) != 2:
        raise Unsupported(f"`einsum` of {len(a['tensors'])} tensors by `{equation}`")
    inputs, output = equation.split("->")
    first, second = inputs.split(",")
    shared = [it for it in first if it in second]
    batch = [it for it in shared if it in output]
    summed = [it for it in shared if it not in output]
    rows, columns = [it for it in first if it not in second], [it for it in second if it not in first]
    if any(it not in output for it in rows + columns):
        raise Unsupported(f"`einsum` by `{equation}`, which sums over a dimension of one tensor")
    x, y = (r.value(each) for each in a["tensors"])
    extents = {it: size(axis) for it, axis in [*zip(first, x.axes), *zip(second, y.axes)]}

    def grouped(value: Value, letters: str, own: Sequence[str]) -> Value:
        axis = dict(zip(letters, value.axes))
        merged = [[dim for it in group for dim in flat(axis[it])] for group in (own, summed)]
        return value.with_axes([*(axis[it] for it in batch), *merged])

    out = product(r, grouped(x, first, rows), grouped(y, second, columns))
    axes = dict(zip(batch, out.axes))
    for group, whole in ((rows, out.axes[-2]), (columns, out.axes[-1])):
        axes.update(zip(group, regrouped(whole, [extents[it] for it in group])))
    return out.with_axes([axes[it] for it in output])


def attention(r: Reader, a: Arguments) -> Value:
    q, k, v = (r.b.tidy(r.value(a[key])) for key in ("query", "key", "value"))
    if r.is_trained(a["attn_mask"]):
        return unfused(r, a, q, k, v)
    has_heads = len(q.axes) > 3
    if not has_heads:
        q, k, v = (with_heads(each) for each in (q, k, v))
    k, v = (each.with_axes([*each.axes[:-3], each.real(-3), *each.axes[-2:]]) for each in (k, v))
    q, k, v = r.b.aligned([q, k, v], apart=[-3, -2, -1])
    q = r.b.roles(q, {-3: "heads", -2: "sequence", -1: "head_dim"})
    k, v = (r.b.roles(each, {-3: "kv_heads", -2: "sequence", -1: "head_dim"}) for each in (k, v))
    old, new = q.real(-1)[0], v.real(-1)[0]
    dims = [new if dim is old else dim for dim in flat(q.dims)]
    attributes: Arguments = {}
    mask = r.mask(a["attn_mask"], a["is_causal"])
    if mask != "full":
        attributes["mask"] = mask
    if a["scale"] is not None and abs(a["scale"] * old.size**0.5 - 1) > 1e-6:
        attributes["scale"] = a["scale"]
    if a["dropout_p"]:
        attributes["dropout"] = a["dropout_p"]
    y = r.b.add("attention", [q, k, v], dims, [*q.axes[:-1], [new]], **attributes)
    if has_heads:
        return y
    lead = [dim for axis in y.axes[:-2] for dim in flat(axis)]
    return y.with_axes([lead, *y.axes[-2:]])


def unfused(r: Reader, a: Arguments, q: Value, k: Value, v: Value) -> Value:
    """Attention whose scores have a trained bias, in parts."""
    from .operators import dropout, softmax

    scores = r.both("add", product(r, q, k), a["attn_mask"])
    shares = softmax(r, {"self": scores, "dim": -1})
    shares = dropout(r, {"input": shares, "p": a["dropout_p"], "train": True})
    return product(r, shares, v.with_axes([*v.axes[:-2], v.axes[-1], v.axes[-2]]))


def with_heads(value: Value) -> Value:
    """Batch and heads, which lie in one axis, apart; a single head where there is none."""
    lead = flat(value.axes[0])
    batch, heads = (lead[:-1], lead[-1:]) if len(lead) > 1 else (lead, [])
    return value.with_axes([batch, heads, *value.axes[1:]])
