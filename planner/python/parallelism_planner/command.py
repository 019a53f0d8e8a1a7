"""The `planner` command, started and read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, Union

Value = Union[str, int, float, bool, "os.PathLike[str]", "Argument", Iterable[Any], None]



class Argument(Protocol):
    """What an answer has that can be given back, such as a layout."""

    def as_argument(self) -> str: ...


#: Exit codes that are answers: found, and nothing fits.
ANSWERS = (0, 1)


class PlannerError(Exception):
    """What the command says it cannot do, and what would work."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_planner() -> str:
    """Where the command is: `$PLANNER`, what was installed with this module, the path, or what `cargo build --release`
    has left in the repository that this module lies in."""
    named = os.environ.get("PLANNER")
    beside = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    built = [str(above / "target" / "release") for above in Path(__file__).resolve().parents]
    path = [*beside, os.environ.get("PATH", ""), *built]
    found = named or shutil.which("planner", path=os.pathsep.join(path))
    if found is None:
        raise FileNotFoundError("no `planner` beside Python or on the path: pip install parallelism-planner")
    return found


def planner(*arguments: Value, **options: Value) -> str:
    """What the command prints.

    Raises `PlannerError` where it cannot answer.
    """
    given = [as_text(argument) for argument in arguments if argument is not None]
    words = [find_planner(), *given, *as_words(options)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in ANSWERS:
        raise PlannerError(done.stderr.strip(), done.returncode)
    return done.stdout


def answer(*arguments: Value, **options: Value) -> dict[str, Any]:
    """What the command answers, as JSON."""
    found: dict[str, Any] = json.loads(planner(*arguments, format="json", **options))
    return found


def as_words(options: dict[str, Value]) -> list[str]:
    """Options as the command takes them; those that are None or False are left out."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.strip("_").replace("_", "-"))
        if value is True:
            continue
        if isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike)):
            words.append(",".join(as_text(item) for item in value))
        else:
            words.append(as_text(value))
    return words


def as_text(value: Any) -> str:
    """A value as the command takes it; a layout of an answer with all of its fields."""
    given = getattr(value, "as_argument", None)
    return str(value if given is None else given())
