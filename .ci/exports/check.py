"""Holds exports of plans to the parsers of the tools that they are for, and tries what a tool does without a GPU.

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

from plans import NotTriable, Refused

OUTCOMES = ["accepted", "refused", "not triable"]

CHECKS = [
    "megatron",
    "megatron-bridge",
    "torchtitan",
    "deepspeed",
    "accelerate",
    "trainer",
    "nanotron",
    "executor",
]


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CHECKS))
        return 0
    folder = Path(sys.argv[1])
    only = sys.argv[2:] or CHECKS
    prepare()
    counts = dict.fromkeys(OUTCOMES, 0)
    for tool in only:
        # In a process of its own: what one check stands in for, another finds to be missing.
        for outcome, _ in in_child(lambda tool=tool: check_all(folder, tool)) or [["refused", ""]]:
            counts[outcome] += 1
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["refused"] else 0


def prepare():
    """Nothing is looked for beyond the files, and nothing is compiled."""
    warnings.simplefilter("ignore")
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TORCHDYNAMO_DISABLE="1")


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
    """What came of each export for a tool: an outcome, and what was said."""
    paths = sorted(path for path in folder.glob(f"*/{tool}") if path.is_dir())
    if not paths:
        return []
    begun = time.monotonic()
    module = module_of(tool)
    imported = time.monotonic() - begun
    outcomes = []
    for path in paths:
        outcome, said = forked(module, path)
        outcomes.append([outcome, said])
        if outcome != "accepted":
            print(f"{outcome}: {path.parent.name} for {tool}: {said}", flush=True)
    took = time.monotonic() - begun
    print(f"{tool}: {len(paths)} exports, {imported:.1f} s to import, {took:.1f} s in all", flush=True)
    return outcomes


def module_of(tool):
    return importlib.import_module("of_" + tool.replace("-", "_"))


def forked(module, path):
    """What comes of a check in a process of its own."""
    # A process that ends otherwise wrote nothing.
    return in_child(lambda: outcome_of(module, path)) or ["refused", "the process of the check did not end"]


def outcome_of(module, path):
    said = io.StringIO()
    try:
        plan = json.loads((path / "plan.json").read_text())
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            module.check(plan, path)
    except NotTriable as why:
        return ["not triable", str(why)]
    except Refused as why:
        return ["refused", str(why)]
    except BaseException:  # Parsers end the process where they refuse.
        return ["refused", traceback.format_exc() + said.getvalue()[-2000:]]
    return ["accepted", ""]


if __name__ == "__main__":
    sys.exit(main())
