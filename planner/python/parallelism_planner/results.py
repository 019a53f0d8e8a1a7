"""What the command answers, with types. Each holds the JSON that it was made of as `json`."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")


def read(kind: type[Answer], json: dict[str, Any], made_of: dict[str, Any] | None = None) -> Answer:
    """A value of what `json` says of its fields; what it does not say is None. It keeps what it was made of."""
    names = [each.name for each in fields(cast(Any, kind)) if each.name != "json"]
    found: Answer = cast(Any, kind)(**{name: json.get(name) for name in names}, json=made_of or json)
    return found


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table for notebooks; texts on the left, numbers on the right."""

    def cell(tag: str, value: object) -> str:
        side = "left" if isinstance(value, str) else "right"
        return f'<{tag} style="text-align: {side}">{escape(shown(value))}</{tag}>'

    head = "".join(cell("th", heading) for heading in headings)
    body = "".join("<tr>" + "".join(cell("td", value) for value in row) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown(value: object) -> str:
    """A value of a table; numbers with four digits, as no prediction is known to more."""
    if value is None:
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def gib(num_bytes: int) -> float:
    return num_bytes / 2**30


@dataclass(frozen=True, repr=False)
class Layout:
    """How a model lies on GPUs. Degrees multiply: tensor, context, pipeline and data make all GPUs.

    Prints in short, as `tp8-sp-pp2-dp1`, and can be given back as the `layout` of another question: itself with all of
    its fields, or what it prints with what that leaves open.
    """

    name: str
    tensor_parallel: int
    sequence_parallel: bool
    context_parallel: int
    context_parallel_kind: str
    expert_parallel: int
    expert_tensor_parallel: int
    pipeline_parallel: int
    virtual_stages: int
    data_parallel: int
    zero_shard: int
    zero_stage: int
    micro_batch_size: int
    num_micro_batches: int
    recompute: str
    offload: str
    schedule: str
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Layout:
        """The layout of a plan, a point or a side, which also has its name."""
        fields = json["layout"]
        return read(cls, {**fields, "name": json["layout_name"]}, fields)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Layout({self.name!r})"

    def as_argument(self) -> str:
        """All of its fields, as the command takes them."""
        return json_text.dumps(self.json)


@dataclass(frozen=True)
class Breakdown:
    """What a step is spent on; its parts add up to it."""

    compute_seconds: float
    recompute_seconds: float
    host_seconds: float
    tensor_parallel_seconds: float
    context_parallel_seconds: float
    expert_parallel_seconds: float
    pipeline_messages_seconds: float
    pipeline_bubble_seconds: float
    data_parallel_seconds: float
    offload_seconds: float
    optimizer_seconds: float
    json: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Memory:
    """What the fullest GPU holds; `host_bytes` lie on its host."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    gathered_bytes: int
    activations_bytes: int
    recompute_bytes: int
    workspace_bytes: int
    buffers_bytes: int
    allocator_bytes: int
    context_bytes: int
    host_bytes: int
    json: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Interval:
    """Where a measured step is expected, with a likelihood of `share`."""

    low_seconds: float
    high_seconds: float
    share: float
    json: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Plan:
    """A layout, and what is predicted of it."""

    layout: Layout
    step_time_seconds: float
    tokens_per_second_per_gpu: float | None
    mfu: float | None
    peak_memory_bytes: int
    fits: bool
    likelihood: float | None
    breakdown: Breakdown
    memory: Memory
    expectation: Interval | None
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Plan:
        plain = read(cls, json)
        expectation = json.get("expectation")
        nested = {
            "layout": Layout.of(json),
            "breakdown": read(Breakdown, json["breakdown"]),
            "memory": read(Memory, json["memory"]),
            "expectation": read(Interval, expectation) if expectation else None,
        }
        return cls(**{**{each.name: getattr(plain, each.name) for each in fields(cls)}, **nested})

    def _repr_html_(self) -> str:
        return plan_table([self])


def plan_table(plans: Iterable[Plan]) -> str:
    headings = ["layout", "schedule", "ZeRO", "micro-batches", "recompute", "step s", "tokens/s/GPU", "MFU %", "GiB", "fits"]
    rows = [
        (
            str(plan.layout),
            plan.layout.schedule,
            plan.layout.zero_stage,
            f"{plan.layout.num_micro_batches} x {plan.layout.micro_batch_size}",
            plan.layout.recompute,
            plan.step_time_seconds,
            plan.tokens_per_second_per_gpu,
            None if plan.mfu is None else plan.mfu * 100,
            gib(plan.peak_memory_bytes),
            "yes" if plan.fits else "no",
        )
        for plan in plans
    ]
    return html_table(headings, rows)


@dataclass(frozen=True)
class Statistics:
    """What a search did. `candidates` were `evaluated`, `pruned` by a bound, or are `open` where it was cut short."""

    candidates: int
    evaluated: int
    pruned: int
    open: int
    elapsed_seconds: float
    stop_reason: str
    json: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Search:
    """The best plans, the best first; none where nothing fits, which `infeasible` then explains."""

    plans: list[Plan]
    statistics: Statistics
    infeasible: dict[str, Any] | None
    json: dict[str, Any] = field(repr=False, compare=False)

    @property
    def best(self) -> Plan:
        """The plan that stands first.

        Raises `LookupError` where nothing fits.
        """
        if not self.plans:
            raise LookupError("nothing fits; `infeasible` says by how much")
        return self.plans[0]

    @classmethod
    def of(cls, json: dict[str, Any]) -> Search:
        plans = [Plan.of(plan) for plan in json["plans"]]
        return cls(plans, read(Statistics, json["search"]), json.get("infeasible"), json)

    def _repr_html_(self) -> str:
        return plan_table(self.plans) if self.plans else "<p>nothing fits; <code>infeasible</code> says by how much</p>"


@dataclass(frozen=True)
class Evaluation:
    """A layout that was named, and the best where nothing is decided."""

    plan: Plan
    best: Plan | None
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Evaluation:
        best = json.get("best")
        return cls(Plan.of(json["plans"][0]), Plan.of(best) if best else None, json)

    def _repr_html_(self) -> str:
        return plan_table([self.plan, *([self.best] if self.best else [])])


@dataclass(frozen=True)
class Term:
    """What one thing takes in each of two steps, and what of their layouts that comes from."""

    term: str
    seconds: list[float]
    because: list[str] | None
    json: dict[str, Any] = field(repr=False, compare=False)

    @property
    def difference_seconds(self) -> float:
        """How much more the second takes."""
        return self.seconds[1] - self.seconds[0]


@dataclass(frozen=True)
class Comparison:
    """How the second of two plans differs from the first."""

    step_time_seconds: float
    share: float
    likelihood_first_is_faster: float
    terms: list[Term]
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Comparison:
        difference = json["difference"]
        return cls(
            difference["step_time_seconds"],
            difference["share"],
            difference["likelihood_first_is_faster"],
            [read(Term, term) for term in difference["terms"]],
            json,
        )

    def _repr_html_(self) -> str:
        rows = [(term.term, *term.seconds, term.difference_seconds) for term in self.terms]
        return html_table(["", "first s", "second s", "difference s"], rows)


@dataclass(frozen=True)
class Kernel:
    """An operator of a block, on the rank with the most work: its time in a step, and what bounds it."""

    block: str
    blocks: int
    operator: str
    forward_seconds: float
    backward_seconds: float
    bound_by: str
    json: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class RunnerUp:
    """A layout that was not chosen, and what it loses against the one that was, part by part."""

    layout: str
    schedule: str
    loses_seconds: float
    parts_seconds: dict[str, float]
    json: dict[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Explanation:
    """Where a plan spends its time and memory. `plan` is what the file has."""

    plan: dict[str, Any]
    breakdown: Breakdown
    memory: Memory
    kernels: list[Kernel]
    runners_up: list[RunnerUp]
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Explanation:
        prediction = json["plan"]["prediction"]
        return cls(
            json["plan"],
            read(Breakdown, prediction["breakdown"]),
            read(Memory, prediction["memory"]),
            [read(Kernel, kernel) for kernel in json["kernels"]],
            [read(RunnerUp, runner_up) for runner_up in json["runners_up"]],
            json,
        )

    def _repr_html_(self) -> str:
        times = [(name, seconds) for name, seconds in self.breakdown.json.items() if seconds]
        sizes = [(name, gib(size)) for name, size in self.memory.json.items() if size]
        kernels = [
            (kernel.operator, kernel.block, kernel.forward_seconds, kernel.backward_seconds, kernel.bound_by)
            for kernel in self.kernels
        ]
        return (
            html_table(["time", "s"], times)
            + html_table(["memory", "GiB"], sizes)
            + html_table(["kernel", "block", "forward s", "backward s", "bound by"], kernels)
        )


@dataclass(frozen=True)
class Point:
    """The best plan for one value; without a layout where nothing fits."""

    value: float
    num_gpus: int
    sequence_length: int
    global_batch_size: int
    layout: Layout | None
    step_time_seconds: float | None
    tokens_per_second_per_gpu: float | None
    mfu: float | None
    peak_memory_bytes: int | None
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Point:
        layout = Layout.of(json) if json.get("layout") else None
        return read(cls, {**json, "layout": layout}, json)


@dataclass(frozen=True)
class Sweep:
    """The best plans for several values of `over`."""

    over: str
    points: list[Point]
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Sweep:
        return cls(json["over"], [Point.of(point) for point in json["points"]], json)

    def _repr_html_(self) -> str:
        rows = [
            (
                point.value,
                "nothing fits" if point.layout is None else str(point.layout),
                point.step_time_seconds,
                point.tokens_per_second_per_gpu,
                None if point.peak_memory_bytes is None else gib(point.peak_memory_bytes),
            )
            for point in self.points
        ]
        return html_table([self.over.replace("_", " "), "layout", "step s", "tokens/s/GPU", "GiB"], rows)


@dataclass(frozen=True)
class Export:
    """Files of a plan for a tool, by name, the one to start with first; and what was changed for the tool."""

    tool: str
    layout: str
    files: dict[str, str]
    notes: list[str]
    json: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: dict[str, Any]) -> Export:
        files = {file["name"]: file["text"] for file in json["files"]}
        return cls(json["tool"], json["layout"], files, json["notes"], json)

    def _repr_html_(self) -> str:
        parts = [f"<h4>{escape(name)}</h4><pre>{escape(text)}</pre>" for name, text in self.files.items()]
        return "".join(f"<p>{escape(note)}</p>" for note in self.notes) + "".join(parts)
