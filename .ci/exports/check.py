"""Holds exports of plans to the parsers of the tools that they are for.

    check.py FOLDER [TOOL..]

FOLDER has a folder for each plan, with a folder for each tool that it was exported for. Each parser is
imported once; each check runs in a process forked from there, as parsers keep what they were told.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

CHECKS = [
    "megatron",
    "megatron-bridge",
    "torchtitan",
    "deepspeed",
    "accelerate",
    "trainer",
    "nanotron",
    "executor",
    "memory",
]


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CHECKS))
        return 0
    folder = Path(sys.argv[1])
    only = sys.argv[2:] or CHECKS
    warnings.simplefilter("ignore")
    # Nothing is looked for beyond the files.
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    accepted = refused = 0
    for tool in only:
        # In a process of its own: what one check stands in for, another finds to be missing.
        counts = in_child(lambda tool=tool: check_all(folder, tool)) or [0, 1]
        accepted += counts[0]
        refused += counts[1]
    print(f"{accepted} accepted, {refused} refused")
    return 1 if refused else 0


def in_child(work):
    """What a function returns in a process of its own; nothing where that ends otherwise."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            with os.fdopen(writer, "w") as pipe:
                json.dump(work(), pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else None


def check_all(folder, tool):
    """How many exports for a tool its check accepts and refuses."""
    checks = sorted(path for path in folder.glob(f"*/{tool}") if path.is_dir())
    if not checks:
        return [0, 0]
    begun = time.monotonic()
    module = importlib.import_module("of_" + tool.replace("-", "_"))
    imported = time.monotonic() - begun
    refused = 0
    for path in checks:
        error = forked(module, path)
        if error:
            refused += 1
            print(f"refused: {path.parent.name} for {tool}\n{error}")
    took = time.monotonic() - begun
    print(f"{tool}: {len(checks)} exports, {imported:.1f} s to import, {took:.1f} s in all", flush=True)
    return [len(checks) - refused, refused]


def forked(module, path):
    """What a check says in a process of its own; nothing where it accepts."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        said = io.StringIO()
        error = ""
        try:
            plan = json.loads((path / "plan.json").read_text())
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                module.check(plan, path)
        except BaseException:  # Parsers end the process where they refuse.
            error = traceback.format_exc() + said.getvalue()[-2000:]
        with os.fdopen(writer, "w") as pipe:
            pipe.write(error)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        error = pipe.read()
    _, status = os.waitpid(child, 0)
    return error or (f"the check ended with status {status}" if status else "")


if __name__ == "__main__":
    sys.exit(main())
