"""How far measured peaks of memory lie from predicted ones, by the parts of the predicted peaks.

    cargo build --release -p planner
    python fit_peaks.py FOLDER_WITH_RUNS

Needs numpy. Prints `PEAK` of `../src/residuals.rs`: the three parts of

    deviation^2 = peak^2 + (temporary share of the peak)^2 + (fixed GiB / peak)^2

with which the peaks of the first half of the sources are most likely, and how likely those of the second half are with
them. Outliers are common, so errors are taken to have Cauchy's distribution, and each source counts once.
"""

import itertools
import sys

import numpy as np
from fit_steps import is_of_second_half, source, validated

STATES = ["parameters", "gradients", "optimizer state", "device context"]
# The parts are known to a factor of two at best; below the first value of PEAK the likelihood hardly changes.
PEAK = [0.01, 0.02, 0.04, 0.08]
TEMPORARY = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32]
FIXED = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0]


def peaks(folder):
    """For each measured peak: error, share that is temporary, GiB, weight, and the half that its source is in."""
    found = {}
    for file in validated(folder)["files"]:
        for row in file["rows"] if file["quantity"] == "peak_memory_bytes" else []:
            if "measured" in row:
                whole = sum(row["terms"].values())
                states = sum(row["terms"].get(name, 0.0) for name in STATES)
                error = np.log(row["measured"] / row["predicted"])
                found.setdefault(source(file["file"]), []).append((error, 1.0 - states / whole, whole / 2**30))
    of_all = [(*row, 1.0 / len(rows), is_of_second_half(name)) for name, rows in found.items() for row in rows]
    return np.array(of_all).T


def log_likelihood(parts, rows):
    error, temporary, gib, weight, second = rows
    deviation = np.sqrt(parts[0] ** 2 + (parts[1] * temporary) ** 2 + (parts[2] / gib) ** 2)
    each = -weight * (np.log(deviation) + np.log1p((error / deviation) ** 2))
    return each[second == 0].sum(), each[second == 1].sum()


if __name__ == "__main__":
    of_runs = peaks(sys.argv[1])
    best = max(itertools.product(PEAK, TEMPORARY, FIXED), key=lambda parts: log_likelihood(parts, of_runs)[0])
    print("PEAK = {}, {}, {} GiB".format(*best))
    print("log likelihood of the halves {:.2f}, {:.2f}".format(*log_likelihood(best, of_runs)))
    print("with one deviation for all   {:.2f}, {:.2f}".format(*max(
        (log_likelihood((every, 0.0, 0.0), of_runs) for every in np.arange(0.01, 0.3, 0.005)), key=lambda it: it[0])))
