"""Parallel layouts of large models on GPUs, by the `planner` command.

    from parallelism_planner import search

    found = search("llama-3.1-8b", gpus=16)
    print(found.best.layout, found.best.step_time_seconds)

Options are those of the command, with underscores: `seq_len=4096` is `--seq-len 4096`, `front=True` is `--front`,
`tp=[1, 2, 4]` is `--tp 1,2,4`. Numbers carry their units in their names.
"""

from .command import PlannerError, find_planner, planner
from .results import (
    Breakdown,
    Comparison,
    Evaluation,
    Interval,
    Layout,
    Memory,
    Plan,
    Search,
    Statistics,
    Term,
)
from .questions import chart, compare, evaluate, schedule, search, validate

__all__ = [
    "Breakdown",
    "Comparison",
    "Evaluation",
    "Interval",
    "Layout",
    "Memory",
    "Plan",
    "PlannerError",
    "Search",
    "Statistics",
    "Term",
    "chart",
    "compare",
    "evaluate",
    "find_planner",
    "planner",
    "schedule",
    "search",
    "validate",
]
