"""Fits the kernel and collective rates to tables of measurements.

    python fit_kernels.py FOLDER_OF_TABLES ../data

Needs numpy, scipy and pandas. Takes about ten minutes on one core; the same tables give the same
numbers. Kernels are fitted in two steps: first the analytic model's few coefficients, by robust
least squares on a sample; then a small table of corrections, multilinear in the logarithms of the
shape, by L1 regression with a smoothness penalty on all rows. Errors are mean absolute relative
errors: `error` on all fitted rows; `held_out_error` by five-fold cross-validation that leaves out
whole (n, k) pairs, or (batch, heads) pairs, so that no neighbour in m gives the answer away.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix

import collective_curves
import models

SAMPLE = 6000  # rows for the analytic coefficients
SMOOTHNESS = 0.1  # penalty on differences between neighbours in the correction table
NOISE = 0.02  # relative errors below this are noise and do not pull
FORMATS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block"}


def interpolation(values, knots):
    """Sparse matrix of multilinear weights; last axis fastest."""
    count = len(values[0])
    columns, weights = np.zeros((count, 1), int), np.ones((count, 1))
    for value, axis in zip(values, knots):
        axis = np.array(axis, float)
        x = np.clip(value, axis[0], axis[-1])
        low = np.clip(np.searchsorted(axis, x, side="right") - 1, 0, len(axis) - 2)
        share = (x - axis[low]) / (axis[low + 1] - axis[low])
        corner, weight = np.stack([low, low + 1], 1), np.stack([1 - share, share], 1)
        columns = (columns[:, :, None] * len(axis) + corner[:, None]).reshape(count, -1)
        weights = (weights[:, :, None] * weight[:, None]).reshape(count, -1)
    rows = np.repeat(np.arange(count), columns.shape[1])
    size = np.prod([len(axis) for axis in knots])
    return csr_matrix((weights.ravel(), (rows, columns.ravel())), shape=(count, size))


def differences(knots):
    """Sparse matrix of differences between neighbours in the table."""
    shape = [len(axis) for axis in knots]
    index = np.arange(np.prod(shape)).reshape(shape)
    pairs = [np.stack([np.take(index, range(n - 1), a).ravel(), np.take(index, range(1, n), a).ravel()], 1)
             for a, n in enumerate(shape)]
    pairs = np.concatenate(pairs)
    signs = np.tile([1.0, -1.0], len(pairs))
    return csr_matrix((signs, (np.repeat(np.arange(len(pairs)), 2), pairs.ravel())))


def fit_table(weights, residual, penalty):
    """L1 regression by iteratively reweighted least squares."""
    importance = np.ones(len(residual))
    for _ in range(12):
        normal = (weights.T.multiply(importance) @ weights).toarray() + SMOOTHNESS * penalty
        table = np.linalg.solve(normal, weights.T @ (importance * residual))
        importance = 0.05 / np.maximum(abs(residual - weights @ table), NOISE)
    return table


def fit(predict, start, low, high, columns, seconds, sample_floor, judge_floor, axes, knots, groups):
    """Coefficients, table and errors of one model on one set of rows."""
    rng = np.random.default_rng(1)
    chosen = np.flatnonzero(seconds > sample_floor)
    chosen = rng.permutation(chosen)[:SAMPLE]
    sample, target = [c[chosen] for c in columns], np.log(seconds[chosen])
    span = high - low

    def objective(x):
        return np.log(predict(low + span * x, *sample)) - target

    x0 = np.clip((start - low) / span, 0.01, 0.99)
    found = least_squares(objective, x0, bounds=(0, 1), loss="soft_l1", f_scale=0.05, max_nfev=60)
    p = low + span * found.x
    residual = np.log(seconds) - np.log(predict(p, *columns))
    weights, step = interpolation(axes, knots), differences(knots)
    penalty = (step.T @ step).toarray() + 1e-3 * np.eye(step.shape[1])
    judged = seconds > judge_floor

    def error(table, rows):
        return abs(np.exp(weights[rows] @ table - residual[rows]) - 1)

    _, pair = np.unique(groups, axis=0, return_inverse=True)
    fold = rng.integers(0, 5, pair.max() + 1)[pair.ravel()]
    held = np.zeros(len(seconds))
    for f in range(5):
        held[fold == f] = error(fit_table(weights[fold != f], residual[fold != f], penalty), fold == f)
    table = fit_table(weights, residual, penalty)
    everything = np.ones(len(seconds), bool)
    analytic = abs(np.exp(-residual) - 1)[judged].mean()
    errors = {"rows": int(judged.sum()), "analytic_error": round(float(analytic), 4),
              "held_out_error": round(float(held[judged].mean()), 4),
              "error": round(float(error(table, everything)[judged].mean()), 4)}
    return p, table, errors


def entry(names, p, table, errors):
    return {**{name: float(f"{value:.4g}") for name, value in zip(names, p)},
            "correction": [round(float(value), 3) for value in table], "fit": errors}


def fit_matmul(folder, gpu):
    rows, fitted = pd.read_csv(folder / f"gemm_{gpu}.csv"), {}
    for name, dtype in FORMATS.items():
        d = rows[(rows.dtype == dtype) & (rows.latency_ms > 0.004)]
        if d.empty:
            continue
        columns = [d[c].to_numpy(float) for c in "mnk"]
        start = models.MATMUL_START.copy()
        if name == "fp8":
            start[0] = 12.0  # the cast of the input is a kernel of its own
        result = fit(lambda p, m, n, k: models.matmul_seconds(p, gpu, name, m, n, k), start,
                     models.MATMUL_LOW, models.MATMUL_HIGH, columns, d.latency_ms.to_numpy() * 1e-3,
                     6e-6, 10e-6, [np.log2(c) for c in columns], models.MATMUL_KNOTS,
                     d[["n", "k"]].to_numpy())
        fitted[name] = entry(models.MATMUL_NAMES, *result)
        print("matmul", gpu, name, fitted[name]["fit"], result[0].round(3), flush=True)
    return fitted


def fit_attention(folder, gpu):
    path = folder / f"attention_forward_{gpu}.csv"
    if not path.exists():
        return {}
    rows, fitted = pd.read_csv(path), {}
    for name in ("bf16", "fp8"):
        d = rows[rows.attn_dtype == FORMATS[name]]
        if d.empty:
            continue
        names = ["batch_size", "seq_len", "num_heads", "num_key_value_heads", "head_dim"]
        b, s, h, kv, dim = columns = [d[c].to_numpy(float) for c in names]
        axes = [np.log2(s), np.log2(b * h), np.log2(dim), np.log2(h / kv)]
        result = fit(lambda p, *c: models.attention_seconds(p, gpu, name, *c),
                     models.ATTENTION_START, models.ATTENTION_LOW, models.ATTENTION_HIGH, columns,
                     d.latency_ms.to_numpy() * 1e-3, 12e-6, 20e-6, axes, models.ATTENTION_KNOTS,
                     d[["batch_size", "num_heads"]].to_numpy())
        fitted[name] = entry(models.ATTENTION_NAMES, *result)
        print("attention", gpu, name, fitted[name]["fit"], result[0].round(3), flush=True)
    return fitted


def write(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")).replace('},"', '},\n"') + "\n")


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    source = "fitted to medians of the performance database of aiconfigurator (NVIDIA, Apache-2.0)"
    write(out / "collectives.json", collective_curves.fit(folder, source))
    sets = {}
    for gpu, (sms, peaks, bandwidth) in models.HARDWARE.items():
        sets[gpu] = {"source": source, "num_multiprocessors": sms,
                     "peak_flops_per_second": peaks, "memory_bandwidth_bytes_per_second": bandwidth,
                     "matmul": fit_matmul(folder, gpu), "attention": fit_attention(folder, gpu)}
    write(out / "kernels.json", {"matmul_knots": models.MATMUL_KNOTS,
                                 "attention_knots": models.ATTENTION_KNOTS, "sets": sets})


if __name__ == "__main__":
    main()
