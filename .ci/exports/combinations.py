"""Tries each kind of combination that plans have once with the tools that they are exported for.

    combinations.py FOLDER [TOOL..]

FOLDER is as for check.py. Printed are the kind, how many plans have it, and for one of them its outcome and name.
"""

import json
import sys
from pathlib import Path

import check

# What is tried: the others' files name no layout that theirs do not.
TOOLS = ["megatron", "torchtitan", "deepspeed", "accelerate"]


def main():
    folder = Path(sys.argv[1])
    check.prepare()
    refused = 0
    for tool in sys.argv[2:] or TOOLS:
        count = check.in_child(lambda tool=tool: try_kinds(folder, tool))
        refused += 1 if count is None else count
    return 1 if refused else 0


def try_kinds(folder, tool):
    """How many kinds of combinations a tool refuses."""
    kinds = {}
    for path in sorted(folder.glob(f"*/{tool}/plan.json")):
        kinds.setdefault(kind_of(json.loads(path.read_text())), []).append(path.parent)
    if not kinds:
        return 0
    module = check.module_of(tool)
    counts = dict.fromkeys(check.OUTCOMES, 0)
    for kind, paths in sorted(kinds.items()):
        outcome, said = check.forked(module, paths[0])
        counts[outcome] += 1
        print(f"{outcome}: {tool}: {kind} ({len(paths)}, {paths[0].parent.name}) {said}".rstrip(), flush=True)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    print(f"{tool}: {len(kinds)} kinds: {told}", flush=True)
    return counts["refused"]


def kind_of(plan):
    """What a plan combines, sizes aside."""
    layout, training = plan["layout"], plan["training"]
    axes = ["tensor", "sequence", "context", "pipeline", "data", "expert"]
    words = []
    for axis in axes:
        size = layout[f"{axis}_parallel"]
        if size > 1 or size is True:
            words.append({"context": f"context-{layout['context_parallel_kind']}"}.get(axis, axis))
    experts = layout["expert_parallel"]
    if experts > 1 and layout["expert_tensor_parallel"] > 1:
        words.append("expert-tensor")
    if experts > 1:
        words.append(layout.get("switches", {}).get("token_dispatcher", "all-to-all"))
    whole = layout["data_parallel"] * layout["context_parallel"]
    words.append(f"zero{layout['zero_stage']}" + ("-hybrid" if 1 < layout["zero_shard"] < whole else ""))
    if layout["offload"] != "none":
        words.append(f"offload-{layout['offload']}")
    words.append("recompute-" + str(layout["recompute"]).split(":")[0])
    if layout["pipeline_parallel"] > 1:
        words.append(str(layout["schedule"]))
    words.append(training["precision"])
    words += [name for name in ("no_master_weights", "bf16_moments", "fp32_gradients") if training.get(name)]
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
