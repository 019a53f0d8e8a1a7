"""Operators that PyTorch's models write out of smaller ones: root mean square norms, rotations, gates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Optional

from .dims import Parameter, Value, flat

if TYPE_CHECKING:
    from .reader import Reader

#: Operators that leave their input what it is.
SAME = ("to", "_to_copy", "alias", "contiguous", "clone", "detach", "float", "type_as")
GATES = {"silu", "gelu", "gelu_tanh", "relu", "tanh", "sigmoid"}


def fused(r: Reader, node: Any, name: str, a: dict[str, Any]) -> Optional[Value]:
    """The operator that these make up, or none."""
    if name == "mul":
        return norm(r, node) or scaled_norm(r, node, a) or gate(r, node, a)
    if name == "add":
        return rotation(r, node)
    return None


def named(node: Any, name: str) -> bool:
    from .reader import base_name

    return getattr(node, "op", None) == "call_function" and base_name(node.target) == name


def plain(node: Any) -> Any:
    """The node behind casts and copies."""
    while any(named(node, name) for name in SAME):
        node = node.args[0]
    return node


def norm(r: Reader, node: Any) -> Optional[Value]:
    """`x rsqrt(mean(x^2) + epsilon)`."""
    for x, root in (node.args[:2], node.args[1::-1]):
        if not named(plain(root), "rsqrt"):
            continue
        total = plain(plain(root).args[0])
        if not named(total, "add") or not isinstance(total.args[1], float):
            continue
        mean = plain(total.args[0])
        power = plain(mean.args[0]) if named(mean, "mean") else None
        if power is None or not named(power, "pow") or power.args[1] != 2 or plain(power.args[0]) is not plain(x):
            continue
        value, dims = r.b.tidy(r.value(r.env[x])), mean.args[1]
        if not all(dim in (-1, len(value.axes) - 1) for dim in dims):
            continue
        over = flat(value.axes[-1])
        attributes = {"over": r.names(over), "weight": False, "epsilon": total.args[1]}
        y = r.b.add("rms_norm", [value], value.dims, value.axes, **attributes)
        r.b.nodes[y.node].over = over
        return y
    return None


def scaled_norm(r: Reader, node: Any, a: dict[str, Any]) -> Optional[Value]:
    """A root mean square norm whose output is scaled by a parameter: the norm's own."""
    for x, weight, source in ((a["self"], a["other"], node.args[0]), (a["other"], a["self"], node.args[1])):
        if not isinstance(x, Value) or not isinstance(weight, Parameter):
            continue
        made = r.b.nodes[x.node]
        is_plain = made.kind == "rms_norm" and made.attributes.get("weight") is False
        if not is_plain or list(weight.shape) != x.shape[-1:] or not is_used_once(source):
            continue
        y = r.b.add("rms_norm", [r.source(made)], x.dims, x.axes, r.path_of(weight), over=made.attributes["over"])
        r.b.nodes[y.node].over = made.over
        if made.attributes["epsilon"] != 1e-5:
            r.b.nodes[y.node].attributes["epsilon"] = made.attributes["epsilon"]
        return r.b.own(y, [weight])
    return None


def is_used_once(node: Any) -> bool:
    """True if one operator reads a node; assertions do not count."""
    readers = [[user for user in each.users if not named(user, "_assert_tensor_metadata")] for each in chain(node)]
    return all(len(each) == 1 for each in readers)


def chain(node: Any) -> list[Any]:
    """The node and those behind its casts."""
    found = [node]
    while any(named(node, name) for name in SAME):
        node = node.args[0]
        found.append(node)
    return found


def gate(r: Reader, node: Any, a: dict[str, Any]) -> Optional[Value]:
    """A function of a gate, times a value of the same shape."""
    for x, other, source in ((a["self"], a["other"], node.args[0]), (a["other"], a["self"], node.args[1])):
        if not isinstance(x, Value) or not isinstance(other, Value) or x.shape != other.shape:
            continue
        made = r.b.nodes[x.node]
        if made.kind not in GATES or not is_used_once(source):
            continue
        given = Value(made.inputs[0], r.b.nodes[made.inputs[0]].dims, x.axes)
        first, second = r.b.aligned([given, other])
        if {id(dim) for dim in flat(first.dims)} != {id(dim) for dim in flat(second.dims)}:
            continue
        second = r.b.in_order(second, first.dims)
        return r.b.add("gated_activation", [first, second], first.dims, first.axes, activation=made.kind)
    return None


def rotation(r: Reader, node: Any) -> Optional[Value]:
    """`x cos + (-second half of x, first half of x) sin`, of tables that are constants."""
    for straight, turned in (node.args[:2], node.args[1::-1]):
        if not (named(straight, "mul") and named(turned, "mul")):
            continue
        x, cosines = straight.args[:2]
        halves = plain(turned.args[0])
        if not named(halves, "cat") or len(halves.args[0]) != 2:
            continue
        negated, first = halves.args[0]
        if not named(negated, "neg") or not is_half(negated.args[0], x) or not is_half(first, x):
            continue
        value, table = r.env[x], r.env.get(cosines)
        if not isinstance(value, Value) or len(flat(value.axes[-1])) != 1 or r.is_trained(table):
            continue
        theta = base_of(r, table)
        attributes: dict[str, Any] = {"scaling": "table"} if theta is None else {"theta": theta}
        return r.b.add("rotary", [value], value.dims, value.axes, f"{r.b.place}.rotary", **attributes)
    return None


def is_half(node: Any, x: Any) -> bool:
    return named(node, "slice") and plain(node.args[0]) is plain(x)


def base_of(r: Reader, cosines: Any) -> Optional[float]:
    """The base of the angles, from a table of cosines by position and feature; none if they are no powers of one."""
    if not isinstance(cosines, r.torch.Tensor) or cosines.is_meta or cosines.shape[-2] < 2 or cosines.shape[-1] < 4:
        return None
    table = cosines.reshape(-1, *cosines.shape[-2:])[0].double()
    half = table.shape[-1] // 2
    angles = [math.acos(max(-1.0, min(1.0, float(cosine)))) for cosine in table[1, :half]]
    if half < 2 or abs(angles[0] - 1) > 1e-3 or angles[1] <= 0:
        return None
    theta = float(round(angles[1] ** -half))
    expected = [theta ** (-at / half) for at in range(half)]
    close = all(abs(math.cos(angle) - math.cos(wanted)) < 1e-3 for angle, wanted in zip(angles, expected))
    return theta if close else None
