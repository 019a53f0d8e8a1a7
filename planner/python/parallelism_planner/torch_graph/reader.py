"""From an exported program to a native graph, operator by operator."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from . import patterns
from .dims import Conflict, Dim, Parameter, Value, flat, size
from .graph import Builder, Names, Sizes, Unsupported
from .operators import ROWS
from .products import part_of_linear

#: What dimensions of an input count, by their number: a preference, since operators say more.
INPUT_HINTS = {2: ("batch", "features"), 3: ("batch", "sequence", "hidden"), 4: ("batch", "channels", "height", "width")}
#: Operators that take of a tensor its size alone.
LIKE = frozenset(
    "zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full".split()
)
TOKEN_HINTS = ("batch", "sequence", "context")


class Reader:
    """Values of an exported program's nodes, and the graph that they make."""

    def __init__(self, torch: Any, program: Any, batch: int, sequence_axis: Optional[int], whole: frozenset[str]) -> None:
        self.torch = torch
        self.program = program
        self.batch = batch
        self.sequence_axis = sequence_axis
        #: Fused linear layers that stay whole, since not all of their outputs are taken apart.
        self.whole = whole
        self.part_sizes: dict[str, int] = {}
        self.b = Builder()
        self.env: dict[Any, Any] = {}
        self.node: Any = None
        self.wrong: dict[str, str] = {}
        self.parameters: dict[tuple[int, int, int], tuple[str, int]] = {}

    # The walk

    def run(self) -> list[Any]:
        """Reads all nodes; the program's outputs."""
        signature, outputs = self.program.graph_signature, []
        for node in self.program.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                self.env[node] = self.placeholder(node, signature)
            elif node.op == "get_attr":
                self.env[node] = getattr(self.program.graph_module, node.target, None)
            elif node.op == "call_function":
                self.b.place = place(node)
                self.env[node] = self.call(node)
            elif node.op == "output":
                wanted = {str(name) for name in signature.user_outputs}
                outputs = [self.env[each] for each in self.flat_args(node.args) if each.name in wanted]
        return outputs

    def placeholder(self, node: Any, signature: Any) -> Any:
        name = node.name
        if name in signature.inputs_to_parameters:
            path = signature.inputs_to_parameters[name]
            tensor = self.program.state_dict[path]
            key = (id(tensor), 0, tensor.shape[0] if tensor.dim() else 1)
            self.parameters.setdefault(key, (path, tensor.numel()))
            return Parameter(path, key, tuple(tensor.shape))
        if name in signature.inputs_to_buffers:
            path = signature.inputs_to_buffers[name]
            stored = self.program.state_dict.get(path)
            return self.program.constants[path] if stored is None else stored
        if name in signature.inputs_to_lifted_tensor_constants:
            return self.program.constants[signature.inputs_to_lifted_tensor_constants[name]]
        tensor = node.meta.get("val")
        if not isinstance(tensor, self.torch.Tensor):
            return tensor
        return self.input(name, tensor)

    def input(self, name: str, tensor: Any) -> Value:
        shape = self.ints(tensor.shape)
        is_index = not tensor.dtype.is_floating_point and tensor.dtype != self.torch.bool
        hints = TOKEN_HINTS if is_index else INPUT_HINTS.get(len(shape), ())
        axes = []
        for at, extent in enumerate(shape):
            symbol = "b" if at == 0 and extent == self.batch else "s" if at == self.sequence_axis else None
            dim = Dim(extent, symbol=symbol)
            dim.name.hint = hints[at] if at < len(hints) else None
            axes.append([dim] if extent > 1 or symbol else [])
        dims = [dim for axis in axes for dim in axis]
        attributes: dict[str, Any] = {"dims": Names(dims), "shape": Sizes(dims)}
        if is_index:
            attributes["element"] = "index"
        return self.b.add("input", [], dims, axes, name, **attributes)

    def call(self, node: Any) -> Any:
        target = node.target
        args, kwargs = self.resolved(node.args), self.resolved(node.kwargs)
        if target is operator.getitem:
            return args[0][args[1]]
        given = [each for each in self.flat_args((args, kwargs)) if isinstance(each, (Value, Parameter))]
        name = base_name(target)
        if name in LIKE:
            args, kwargs = self.stand_ins((args, kwargs))
            given = []
        if not given:
            return self.constant(target, args, kwargs)
        try:
            bound = bind(target, args, kwargs)
            if name not in ROWS:
                raise Unsupported("no row of the table has it")
            made = patterns.fused(self, node, name, bound)
            result = ROWS[name](self, bound) if made is None else made
            self.check(node, result)
        except (Unsupported, Conflict, LookupError, TypeError, AttributeError) as error:
            result = self.unknown(node, given, str(error))
        if is_in_place(target) and node.args:
            self.env[node.args[0]] = result
        return result

    def check(self, node: Any, result: Any) -> None:
        """Checks the sizes that a row leaves against PyTorch's."""
        if isinstance(result, Value) and hasattr(node.meta.get("val"), "shape") and result.shape != self.out_shape():
            raise Unsupported(f"it leaves {result.shape}, where PyTorch has {self.out_shape()}")

    def constant(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What depends on no parameter and no input, computed."""
        is_meta = any(getattr(each, "is_meta", False) for each in self.flat_args((args, kwargs)))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": "meta" if is_meta else "cpu"}
        if is_meta:
            args, kwargs = self.torch.utils._pytree.tree_map(
                lambda each: each.to("meta") if isinstance(each, self.torch.Tensor) else each, (args, kwargs)
            )
        with self.torch.no_grad():
            return target(*args, **kwargs)

    def unknown(self, node: Any, given: list[Any], problem: str) -> Any:
        """A stand-in for an operator that cannot be read, which matters only if an output needs it."""
        inputs = [self.value(each) for each in given]

        def of(tensor: Any) -> Any:
            if not hasattr(tensor, "shape"):
                return tensor
            axes = []
            for at, extent in enumerate(self.ints(tensor.shape)):
                symbol = "b" if at == 0 and extent == self.batch else None
                axes.append([Dim(extent, symbol=symbol)] if extent > 1 or symbol else [])
            made = self.b.add("?", inputs, [dim for axis in axes for dim in axis], axes)
            self.wrong[made.node] = f"`{node.target}` at `{place(node)}`: {problem}"
            return made

        found = node.meta.get("val")
        return tuple(of(each) for each in found) if isinstance(found, (tuple, list)) else of(found)

    def stand_ins(self, given: Any) -> Any:
        """The arguments with empty tensors in the place of those that are not known."""
        if isinstance(given, (Value, Parameter)):
            return self.torch.empty(self.shape(given))
        if isinstance(given, (list, tuple)):
            return type(given)(self.stand_ins(each) for each in given)
        if isinstance(given, dict):
            return {key: self.stand_ins(each) for key, each in given.items()}
        return given

    # What rows ask

    def value(self, given: Any) -> Value:
        """A tensor, be it a parameter."""
        if isinstance(given, Value):
            return given
        if isinstance(given, Parameter):
            return self.b.parameter(given)
        if not isinstance(given, self.torch.Tensor) or not given.dtype.is_floating_point:
            raise Unsupported("a constant where a tensor is expected")
        axes = [[Dim(extent)] if extent > 1 else [] for extent in given.shape]
        dims = [dim for axis in axes for dim in axis] or [Dim(1, rigid=True)]
        return self.b.add("input", [], dims, axes, f"{self.b.place}.constant", dims=Names(dims), shape=Sizes(dims))

    def ints(self, shape: Iterable[Any]) -> list[int]:
        return [each if isinstance(each, int) else int(each.node.hint) for each in shape]

    @staticmethod
    def names(dims: Sequence[Dim]) -> Names:
        return Names(list(dims))

    def source(self, node: Any) -> Value:
        """The first input of a node."""
        return Value(node.inputs[0], self.b.nodes[node.inputs[0]].dims, [])

    def shape(self, given: Any) -> list[int]:
        return given.shape if isinstance(given, Value) else self.ints(getattr(given, "shape", ()))

    def broadcast_shape(self, tensors: Sequence[Any]) -> list[int]:
        return list(self.torch.broadcast_shapes(*(tensor.shape for tensor in tensors)))

    def out_shape(self) -> list[int]:
        found = self.node.meta["val"]
        return self.ints((found[0] if isinstance(found, (tuple, list)) else found).shape)

    def gives_several(self) -> bool:
        return isinstance(self.node.meta["val"], (tuple, list))

    def out_sides(self, rank: int) -> list[int]:
        sides = self.out_shape()[-rank:]
        return sides if rank == 2 else [1, *sides]

    def path_of(self, given: Any) -> str:
        """Where the module of a parameter is; of a parameter by itself, its own name."""
        path = given.path
        for ending in ("weight", "bias"):
            if path.endswith(ending) and path != ending:
                return str(path[: -len(ending)].rstrip("._"))
        return str(path)

    @staticmethod
    def is_kept(kind: str, index: int) -> bool:
        """True if an operator of images leaves the dimension of this number where its size is the same."""
        return index > 0 or not kind.startswith("conv")

    def part_of_linear(self, x: Value, at: int, dim: Dim, start: int, end: int) -> Optional[Value]:
        return part_of_linear(self, x, at, dim, start, end)

    def both(self, name: str, first: Any, second: Any) -> Value:
        """An elementwise operator of two tensors."""
        a, b = self.b.aligned([self.value(first), self.value(second)])
        of_a, of_b = {id(dim) for dim in flat(a.dims)}, {id(dim) for dim in flat(b.dims)}
        axes = [x if size(x) >= size(y) else y for x, y in zip(a.axes, b.axes)]
        if name in ("add", "multiply") and of_a < of_b:
            a, b, of_a, of_b = b, a, of_b, of_a
        if name == "add" and self.is_parameter(b) and of_b <= of_a:
            y = self.b.add("add_parameter", [a], a.dims, axes, self.root_of(b).name, over=Names(flat(b.dims)))
            return self.taken_over(y, b)
        if of_a == of_b:
            b = self.b.in_order(b, a.dims)
            if name in ("add", "multiply"):
                return self.b.add(name, [a, b], a.dims, axes)
        elif name == "multiply" and of_b < of_a:
            return self.b.add(name, [a, b], a.dims, axes)
        dims = flat(a.dims) + [dim for dim in flat(b.dims) if id(dim) not in of_a]
        return self.b.add("elementwise", [a, b], dims, axes, function=name)

    def root_of(self, value: Value) -> Any:
        """The node that a value is a view of."""
        node = self.b.nodes[value.node]
        while node.kind == "reshape":
            node = self.b.nodes[node.inputs[0]]
        return node

    def is_parameter(self, value: Value) -> bool:
        return bool(self.root_of(value).kind == "parameter")

    def is_trained(self, given: Any) -> bool:
        """True if a tensor depends on parameters."""
        if not isinstance(given, Value):
            return isinstance(given, Parameter)
        owners, pending, met = set(self.b.owners.values()), [given.node], set()
        while pending:
            name = pending.pop()
            if name in owners:
                return True
            if name not in met:
                met.add(name)
                pending.extend(self.b.nodes[name].inputs)
        return False

    def taken_over(self, value: Value, parameter: Value) -> Value:
        """The value, whose node has a parameter for its own."""
        root = self.root_of(parameter)
        self.b.nodes[value.node].tied_to = root.tied_to
        for key, owner in self.b.owners.items():
            if owner == root.name:
                self.b.owners[key] = value.node
        return value

    def row_before(self, row: Value, x: Value) -> Optional[Value]:
        """A trained row before a sequence, where `row` is one."""
        if not self.is_parameter(row) or [id(d) for d in flat(row.dims)] != [id(d) for d in flat(x.axes[-1])]:
            return None
        if len(flat(row.dims)) != 1 or any(dim.symbol for dim in flat(x.axes[1])):
            return None
        x = self.b.roles(x, {1: "sequence", 2: "hidden"})
        old = x.real(1)[0]
        new = Dim(old.size + 1, rigid=True, name=old.name)
        new.name.is_shared = True
        dims = [new if dim is old else dim for dim in flat(x.dims)]
        y = self.b.add("prepend_parameter", [x], dims, [x.axes[0], [new], x.axes[2]], self.root_of(row).name)
        return self.taken_over(y, row)

    def mask(self, given: Any, is_causal: bool) -> Any:
        """What a query attends to, read off the mask where it is a constant."""
        if is_causal:
            return "causal"
        if not isinstance(given, self.torch.Tensor) or given.is_meta:
            return "full"
        torch = self.torch
        seen = given if given.dtype == torch.bool else given > -1e4
        seen = seen.reshape(-1, *seen.shape[-2:])[0]
        rows, columns = seen.shape
        if rows < 2 or rows != columns:
            return "full"
        if torch.equal(seen, torch.ones_like(seen).tril()):
            return "causal"
        window = int(seen[-1].sum())
        banded = torch.ones_like(seen).tril() & ~torch.ones_like(seen).tril(-window)
        return {"sliding_window": window} if torch.equal(seen, banded) else "full"

    # Arguments

    def resolved(self, given: Any) -> Any:
        if isinstance(given, (list, tuple)):
            return type(given)(self.resolved(each) for each in given) if type(given) in (list, tuple) else [
                self.resolved(each) for each in given
            ]
        if isinstance(given, dict):
            return {key: self.resolved(each) for key, each in given.items()}
        found = self.env[given] if isinstance(given, self.torch.fx.Node) else given
        return int(found.node.hint) if isinstance(found, self.torch.SymInt) else found

    def flat_args(self, given: Any) -> list[Any]:
        if isinstance(given, dict):
            return self.flat_args(list(given.values()))
        if isinstance(given, (list, tuple)):
            return [each for item in given for each in self.flat_args(item)]
        return [given]


def bind(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the operator's schema, with its defaults."""
    if not hasattr(target, "_schema"):
        raise Unsupported("it is no operator of PyTorch's own")
    bound = {}
    for at, argument in enumerate(target._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        bound[argument.name] = args[at] if at < len(args) else kwargs.get(argument.name, default)
    return bound


def base_name(target: Any) -> str:
    """`relu` of `aten.relu_.default`."""
    name = getattr(target, "_schema", None)
    if name is None:
        return str(target)
    short = str(name.name).rsplit("::", maxsplit=1)[-1]
    return short[:-1] if short.endswith("_") and not short.startswith("__") else short


def is_in_place(target: Any) -> bool:
    name = str(getattr(getattr(target, "_schema", None), "name", ""))
    return name.endswith("_") and not name.endswith("__")


def place(node: Any) -> str:
    """Path of the module that an operator is in; of a function in a larger module, with the function's name."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    short = base_name(node.target) if node.op == "call_function" else node.name
    if not stack:
        return short
    path, kind = str(stack[-1][0]), str(stack[-1][1])
    is_leaf = "torch.nn.modules" in kind and "container" not in kind
    named = path if is_leaf and path else f"{path}.{short}" if path else short
    return named.removeprefix("L__self___").removeprefix(".")
