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
    Explanation,
    Export,
    Interval,
    Kernel,
    Layout,
    Memory,
    Plan,
    Point,
    RunnerUp,
    Search,
    Statistics,
    Sweep,
    Term,
)
from .questions import chart, compare, evaluate, explain, export, schedule, search, sweep, validate
from .torch_graph import UnsupportedModule, graph_from_torch

__all__ = [
    "Breakdown",
    "Comparison",
    "Evaluation",
    "Explanation",
    "Export",
    "Interval",
    "Kernel",
    "Layout",
    "Memory",
    "Plan",
    "PlannerError",
    "Point",
    "RunnerUp",
    "Search",
    "Statistics",
    "Sweep",
    "Term",
    "UnsupportedModule",
    "chart",
    "compare",
    "evaluate",
    "explain",
    "export",
    "find_planner",
    "graph_from_torch",
    "planner",
    "schedule",
    "search",
    "sweep",
    "validate",
]
