"""What the command answers, with types. Each holds the JSON that it was made of as `json`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")


def read(kind: type[Answer], json: dict[str, Any]) -> Answer:
    """A value of what `json` says of its fields; what it does not say is None."""
    names = [each.name for each in fields(cast(Any, kind)) if each.name != "json"]
    found: Answer = cast(Any, kind)(**{name: json.get(name) for name in names}, json=json)
    return found


@dataclass(frozen=True)
class Layout:
    """How a model lies on GPUs. Degrees multiply: tensor, context, pipeline and data make all GPUs."""

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
            "layout": read(Layout, json["layout"]),
            "breakdown": read(Breakdown, json["breakdown"]),
            "memory": read(Memory, json["memory"]),
            "expectation": read(Interval, expectation) if expectation else None,
        }
        return cls(**{**{each.name: getattr(plain, each.name) for each in fields(cls)}, **nested})


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
