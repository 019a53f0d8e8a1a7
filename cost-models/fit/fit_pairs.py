"""The error of pairs (two measured layouts of one problem) that the spreads of constants do not explain.

    cargo build --release -p planner -p planner-evidence --example fit_steps --bin planner
    python fit_pairs.py FOLDER_WITH_RUNS

Needs numpy. Prints the pairs' error, and `PAIRED_REST` of `../src/residuals.rs`. A pair's error is the difference of
the logarithms of measured over predicted time, each predicted without its source. Constants explain a part of its
variance, the sum over constants of `(slope of the one - slope of the other)^2 spread^2`. The rest is chosen such that
68 % of the pairs lie within the deviation that both parts make together. vTrain's thousand steps are left out.
"""

import sys

import numpy as np
from fit_steps import known, steps, validated

LEFT_OUT = ["vtrain"]
WITHIN = 0.6827


def pairs(folder):
    """Errors, the variance that constants explain of them, and weights: a group's is its number of rows less one."""
    predicted = {}
    for file in validated(folder)["files"]:
        if file["quantity"] == "step_time_seconds":
            for row in file["rows"]:
                if "measured" in row:
                    predicted[file["file"], row["id"]] = row.get("left_out", row["predicted"])
    groups = {}
    for row in steps(folder, {}):
        if not any(name in row["file"] for name in LEFT_OUT):
            groups.setdefault((row["file"], row["problem"]), []).append(row)
    found = []
    for rows in groups.values():
        of_group = []
        for place, one in enumerate(rows):
            for other in rows[:place]:
                if one["layout"] != other["layout"]:
                    logs = [np.log(it["measured"] / predicted[it["file"], it["id"]]) for it in (one, other)]
                    of_group.append((logs[0] - logs[1], explained(one["derivatives"], other["derivatives"])))
        weight = (len(rows) - 1) / max(len(of_group), 1)
        found.extend((error, variance, weight) for error, variance in of_group)
    return np.array(found).T


def explained(one, other):
    slopes = {key: one.get(key, 0.0) - other.get(key, 0.0) for key in one | other}
    return sum((slope * known(key, "spread")) ** 2 for key, slope in slopes.items())


def quantile(values, weights, share):
    order = np.argsort(values)
    return values[order][np.searchsorted(np.cumsum(weights[order]) / weights.sum(), share)]


if __name__ == "__main__":
    errors, variances, weights = pairs(sys.argv[1])
    print(f"{len(errors)} pairs, {WITHIN:.0%} within {quantile(abs(errors), weights, WITHIN):.4f}")
    rests = np.arange(0.0, 0.2, 0.0005)
    within = [quantile(abs(errors) / np.sqrt(variances + rest**2 + 1e-12), weights, WITHIN) for rest in rests]
    print(f"PAIRED_REST = {rests[np.searchsorted(-np.array(within), -1.0)]:.4f}")
