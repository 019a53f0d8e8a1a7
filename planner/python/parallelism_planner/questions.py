"""What the command is asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Union

from .command import Value, answer, planner
from .results import Comparison, Evaluation, Explanation, Export, Layout, Search, Sweep

File = Union[str, "os.PathLike[str]"]


def search(model: File, gpus: int, **options: Value) -> Search:
    """The fastest layouts of a model on so many GPUs; `output="plan.json"` keeps the best."""
    return Search.of(answer("search", model, gpus=gpus, **options))


def evaluate(model: File, gpus: int, layout: Union[str, Layout], **options: Value) -> Evaluation:
    """Time and memory of one layout, such as `"tp8-sp-pp4-dp2"`, or that of a plan."""
    return Evaluation.of(answer("evaluate", model, gpus=gpus, layout=layout, **options))


def compare(first: Union[File, Layout], second: Union[File, Layout], **options: Value) -> Comparison:
    """Two plans, term by term; or layouts, with `model` and `gpus` where both are."""
    return Comparison.of(answer("compare", first, second, **options))


def explain(plan: File) -> Explanation:
    """Where the seconds and bytes of a plan go, what bounds its kernels, and what the runners-up lose."""
    return Explanation.of(answer("explain", plan))


def sweep(model: File, over: Union[str, Mapping[str, Iterable[Any]]], **options: Value) -> Sweep:
    """The best plan for each of several values: `over={"gpus": [8, 16, 32]}`, or `over="gpus=8..32"`."""
    if not isinstance(over, str):
        over = " ".join(f"{name}={','.join(str(value) for value in values)}" for name, values in over.items())
    return Sweep.of(answer("sweep", model, over=over, **options))


def export(plan: File, to: str, **options: Value) -> Export:
    """A plan as the files of the tool that trains, such as `to="megatron"`; `output="job"` writes them."""
    return Export.of(answer("export", plan, to=to, **options))


def schedule(
    name: str | None = None, stages: int | None = None, micro_batches: int | None = None, **options: Value
) -> dict[str, Any]:
    """A pipeline schedule, its time and its bubble: by name, or from a file of its actions, `from_="mine.csv"`."""
    return answer("schedule", name, stages=stages, micro_batches=micro_batches, **options)


def validate(*folders: File, **options: Value) -> dict[str, Any]:
    """Predictions beside measured steps: those that ship, or those of a folder."""
    return answer("validate", *folders, **options)


def chart(*files: File, output: File, **options: Value) -> None:
    """Draws plans and timelines, one below the other, in a file whose name says its kind."""
    planner("chart", *files, output=output, **options)
