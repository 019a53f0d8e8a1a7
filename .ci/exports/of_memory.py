"""Snapshots of predicted memory, read by PyTorch's own tools: `trace` asks for the fields of each event, `segsum` adds up
what segments hold, and `trace_plot` makes the page of the viewer."""

import pickle

from torch.cuda import _memory_viz

from plans import equal, need


def check(plan, folder):
    with open(folder / "snapshot.pickle", "rb") as file:
        snapshot = pickle.load(file)
    equal("devices", len(snapshot["device_traces"]), plan["layout"]["pipeline_parallel"])
    need(_memory_viz.trace(snapshot).startswith("Device 0"), "the first pipeline rank is the first device")
    need("total_allocated" in _memory_viz.segsum(snapshot), "segments add up")
    need("snapshot.pickle" in _memory_viz.trace_plot(snapshot), "the page has the snapshot")
