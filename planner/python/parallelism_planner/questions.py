"""What the command is asked."""

from __future__ import annotations

import os
from typing import Any, Union

from .command import Value, answer, planner
from .results import Comparison, Evaluation, Search

File = Union[str, "os.PathLike[str]"]


def search(model: File, gpus: int, **options: Value) -> Search:
    """The fastest layouts of a model on so many GPUs; `output="plan.json"` keeps the best."""
    return Search.of(answer("search", model, gpus=gpus, **options))


def evaluate(model: File, gpus: int, layout: str, **options: Value) -> Evaluation:
    """Time and memory of one layout, such as `"tp8-sp-pp4-dp2"`."""
    return Evaluation.of(answer("evaluate", model, gpus=gpus, layout=layout, **options))


def compare(first: File, second: File, **options: Value) -> Comparison:
    """Two plans, term by term."""
    return Comparison.of(answer("compare", first, second, **options))


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
