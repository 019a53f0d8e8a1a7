"""Curves of NCCL's collectives within a node, by regression over all tables together.

A curve has about sixteen rows with gaps, and jumps where NCCL changes its protocol. The jumps
are at the same sizes for neighbouring group sizes, kinds and GPUs of a family, so a Gaussian
process over all curves fills a gap better than any one curve can: its held-out error is 3.5 % from
64 KiB up, while that of a polyline through the curve's own rows is 6.2 %. The result is thinned to
the polyline with the fewest knots that stays within 2.5 % of it.
"""

import numpy as np
import pandas as pd

GPUS = ["a100", "h100", "h200", "b200", "gb200"]
FAMILY = {"a100": 0, "h100": 1, "h200": 1, "b200": 2, "gb200": 2}
OCTAVES = np.arange(9, 30)  # 512 B to 512 MiB
NOISE = 0.0537
THIN = 0.0356  # log2 of 1.025

# Amplitude and length (in octaves) of the four parts, found by leave-one-out search: shared by all;
# by kind; by kind within a family; by kind on one GPU.
PARTS = [(0.507, 12.94), (0.078, 6.254), (0.213, 2.861), (0.02, 6.62)]
GROUP_LENGTH = 0.651  # in octaves of the group size


def kernel(a, b):
    def same(name):
        return (a[name].to_numpy()[:, None].astype(str) == b[name].to_numpy()[None].astype(str)) * 1.0

    gap = a.x.to_numpy()[:, None] - b.x.to_numpy()[None]
    kind, gpu, family = same("collective"), same("gpu"), same("family")
    alike = 0.25 + 0.4 * family + 0.35 * gpu
    ratio = np.log2(a.num_ranks.to_numpy()[:, None] / b.num_ranks.to_numpy()[None])
    near = np.exp(-0.5 * (ratio / GROUP_LENGTH) ** 2)
    (s0, l0), (s1, l1), (s2, l2), (s3, l3) = PARTS
    smooth = s0**2 * np.exp(-0.5 * (gap / l0) ** 2) * (0.5 + 0.5 * kind) * (0.3 + 0.7 * near) * alike
    jumps = s1**2 * np.exp(-abs(gap) / l1) * kind * near * alike
    jumps += s2**2 * np.exp(-abs(gap) / l2) * kind * near * family
    return smooth + jumps + s3**2 * np.exp(-abs(gap) / l3) * kind * gpu * (0.2 + 0.8 * near)


def prior(octave):
    """8 us and 200 GB/s, as log2 of microseconds."""
    return np.log2(8 + 2.0**octave / 250e3)


def thin(x, y):
    """Fewest knots within THIN of the curve (Douglas and Peucker 1973)."""
    line = y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0])
    worst = int(np.argmax(abs(y - line)))
    if abs(y - line)[worst] <= THIN:
        return [x[0], x[-1]]
    return thin(x[: worst + 1], y[: worst + 1])[:-1] + thin(x[worst:], y[worst:])


def fit(folder, source):
    tables = [pd.read_csv(folder / f"nccl_{gpu}.csv").assign(gpu=gpu, family=FAMILY[gpu]) for gpu in GPUS]
    rows = pd.concat(tables, ignore_index=True)
    rows["x"] = np.log2(rows.message_bytes)
    target = np.log2(rows.latency_ms * 1e3).to_numpy()
    inverse = np.linalg.inv(kernel(rows, rows) + NOISE**2 * np.eye(len(rows)))
    pull = inverse @ (target - prior(rows.x.to_numpy()))
    held = abs(2 ** -(pull / np.diag(inverse)) - 1)
    large = (rows.message_bytes >= 65536).to_numpy()
    print(f"collectives, held out: {held[large].mean():.4f} from 64 KiB, {held[~large].mean():.4f} below")
    out = {}
    for (gpu, kind, ranks), own in rows.groupby(["gpu", "collective", "num_ranks"]):
        grid = pd.DataFrame({"x": OCTAVES.astype(float), "collective": kind, "num_ranks": ranks,
                             "gpu": gpu, "family": FAMILY[gpu]})
        curve = np.maximum.accumulate(prior(OCTAVES) + kernel(grid, rows) @ pull)
        knots = thin(OCTAVES, curve)
        values = [round(float(curve[k - 9]), 3) for k in knots]
        error = abs(2 ** (np.interp(own.x, knots, values) - np.log2(own.latency_ms * 1e3)) - 1)
        own_large = own.message_bytes >= 65536
        out.setdefault(gpu, {"source": source + ", NCCL, one node", "curves": {}})
        out[gpu]["curves"].setdefault(kind, {})[str(ranks)] = {
            "log2_bytes": [float(k) for k in knots], "log2_microseconds": values,
            "mean_error": round(float(error[own_large].mean()), 4)}
    counts = [len(c["log2_bytes"]) for g in out.values() for k in g["curves"].values() for c in k.values()]
    errors = [c["mean_error"] for g in out.values() for k in g["curves"].values() for c in k.values()]
    print(f"{len(counts)} curves, {np.mean(counts):.1f} knots each, mean error {np.mean(errors):.4f}")
    return out
