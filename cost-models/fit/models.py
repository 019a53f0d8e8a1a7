"""The kernel models of src/kernels, in numpy: the same formulas, for fitting only.

tests/it/measured.rs compares the errors of the Rust code with those that the fit reports, so the two
cannot drift apart unnoticed.
"""

import numpy as np

# The measured GPUs: multiprocessors, peak rates and memory bandwidth, from data sheets (clusters/*.json).
HARDWARE = {
    "a100": (108, {"bf16": 312e12}, 2.039e12),
    "h100": (132, {"bf16": 989e12, "fp8": 1979e12}, 3.35e12),
    "h200": (132, {"bf16": 989e12, "fp8": 1979e12}, 4.8e12),
    "b200": (148, {"bf16": 2250e12, "fp8": 4500e12}, 8e12),
}

# Output tiles of cuBLAS and CUTLASS kernels, and their splits of the k loop.
TILES = [(256, 128), (128, 256), (128, 128), (64, 256), (256, 64),
         (64, 128), (128, 64), (64, 64), (32, 64), (64, 32)]
SPLITS = [1, 2, 3, 4, 6, 8, 16]

MATMUL_NAMES = ["launch_microseconds", "efficiency", "epilogue_microseconds", "memory_share",
                "split_traffic", "load_gigabytes_per_second", "latency_nanoseconds", "quantise_traffic",
                "whole_waves", "occupancy_power"]
MATMUL_START = np.array([3.0, 0.85, 1.0, 0.85, 1.0, 100.0, 1.0, 0.5, 0.5, 0.5])
MATMUL_LOW = np.array([1.0, 0.3, 0.0, 0.4, 0.0, 20.0, 0.0, 0.0, 0.0, 0.0])
MATMUL_HIGH = np.array([20.0, 1.3, 6.0, 1.0, 20.0, 2000.0, 10.0, 6.0, 1.0, 1.0])
# log2 of m, n, k.
MATMUL_KNOTS = [[0, 5, 8, 10.5, 13], [6, 8.5, 10.5, 12.5, 15], [6, 8, 9.5, 11, 12.5, 15]]

ATTENTION_NAMES = ["launch_microseconds", "efficiency", "tile_microseconds", "memory_share",
                   "prepare_traffic", "efficiency_64", "efficiency_192", "efficiency_256"]
ATTENTION_START = np.array([8.0, 0.6, 1.0, 0.8, 0.5, 1.0, 1.0, 1.0])
ATTENTION_LOW = np.array([2.0, 0.2, 0.0, 0.2, 0.0, 0.3, 0.5, 0.5])
ATTENTION_HIGH = np.array([20.0, 1.0, 8.0, 1.0, 8.0, 1.5, 1.5, 1.5])
# log2 of the sequence, batch x heads, head dimension, query heads to a key head.
ATTENTION_KNOTS = [[0, 5, 7, 9, 11, 14], [2, 5, 8, 11], [6, 7, 8], [0, 6]]


def fourth_root(x):
    return np.sqrt(np.sqrt(x))


def matmul_seconds(p, gpu, dtype, m, n, k):
    """Seconds of C[m, n] = A[m, k] B[k, n], before the correction table."""
    sms, peaks, bandwidth = HARDWARE[gpu]
    peak, width = (peaks["bf16"], 2) if dtype == "bf16" else (peaks["fp8"], 1)
    launch, eff, epilogue, share, split_traffic, load, latency, quantise, whole, occupancy = p
    traffic = width * (m * k + k * n) + 2 * m * n
    best = np.full(m.shape, np.inf)
    for rows, cols in TILES:
        tiles = np.ceil(m / rows) * np.ceil(n / cols)
        per_k = fourth_root((2 * rows * cols / (peak / sms) / eff) ** 4
                            + ((rows + cols) * width / (load * 1e9)) ** 4 + (latency * 1e-9) ** 4)
        end = epilogue * 1e-6 * np.sqrt(rows * cols / 16384)
        for split in SPLITS:
            depth = np.ceil(k / split / 64) * 64
            waves = tiles * split / sms
            rounds = np.where(waves < 1, 1, np.ceil(waves) * whole + waves * (1 - whole))
            compute = rounds * (depth * per_k + end)
            extra = 4 * split * m * n * split_traffic if split > 1 else 0
            memory = (traffic + extra) / (bandwidth * share * np.minimum(1, waves) ** occupancy)
            both = compute ** 4 + memory ** 4
            best = np.minimum(best, np.where(k / split >= 128, both, np.inf) if split > 1 else both)
    cast = 0 if dtype == "bf16" else quantise * 3 * m * k / bandwidth
    return launch * 1e-6 + fourth_root(best) + cast


def attention_seconds(p, gpu, dtype, b, s, heads, kv_heads, dim):
    """Seconds of a causal attention's forward pass, before the correction table."""
    sms, peaks, bandwidth = HARDWARE[gpu]
    peak, width = (peaks["bf16"], 2) if dtype == "bf16" else (peaks["fp8"], 1)
    launch, eff, tile, share, prepare, e64, e192, e256 = p
    eff = eff * np.interp(np.log2(dim), [6, 7, np.log2(192), 8], [e64, 1, e192, e256])
    rows = 128.0
    per_key = 4 * rows * dim / (peak / sms) / eff
    mean = (s + rows) / 2 * per_key + tile * 1e-6
    longest = np.maximum(s, rows) * per_key + tile * 1e-6
    waves = b * heads * np.ceil(s / rows) / sms
    masked = fourth_root((np.ceil(waves) * mean) ** 4 + longest ** 4)
    compute = np.where(waves <= 1, longest, np.minimum(masked, np.ceil(waves) * longest))
    traffic = width * b * s * dim * (heads + 2 * kv_heads) + 2 * b * s * heads * dim
    memory = traffic / (bandwidth * share)
    return launch * 1e-6 + fourth_root(compute ** 4 + memory ** 4) + prepare * traffic / bandwidth
