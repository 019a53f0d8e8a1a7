"""Fits the constants of whole steps to measured ones.

    cargo build --release -p planner --example fit_steps --bin planner
    python fit_steps.py FOLDER_WITH_RUNS ../data

Needs numpy. Changes `training.json`, constants by GPU, in a folder of data, and constants by framework in the
files of `../frameworks`; then, built again, `python fit_steps.py --residuals FOLDER_WITH_RUNS ../data` writes
how measured steps lie about the new predictions to `residuals.json`.

Gauss-Newton in the logarithms of all constants at once, with derivatives by the planner itself. Errors
count by their size, not its square, so that a few odd rows pull little; a table counts as the 0.4th
power of its number of rows; and a constant that few rows depend on stays near where it was. Errors
with a whole table left out are printed beside: they say what another source may see.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FRAMEWORKS = Path(__file__).parents[1] / "frameworks"
RELEASE = Path(__file__).parents[2] / "target" / "release"
ITERATIONS = 3
NOISE = 0.03  # relative errors below this are noise and do not pull
ODD = 0.5  # errors above this, in logarithms, have causes that no constant stands for, and do not either
PRIOR = 3e-4  # of a constant's logarithm, over the weights of all rows
LARGEST_MOVE = 0.4  # in logarithms, in one iteration
LEAST_ROWS = 12  # as in residuals.rs

# Of B300 in 16 bits one model alone was measured, whose errors have other causes.
SAME = {"b300 matmul": "b200 matmul"}
# Rows that pull at no constant: GPT-OSS takes a third longer than predicted on all GPUs and in all formats, and
# would slow down the products of all other models.
OTHER_CAUSES = ["gptoss"]


def derivatives(folder, factors):
    factors = factors | {name: factors.get(other, 1.0) for name, other in SAME.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(factors, file)
        file.flush()
        command = [RELEASE / "examples" / "fit_steps", folder, file.name]
        rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    rows = [row for row in rows if not any(name in row["id"] for name in OTHER_CAUSES)]
    for row in rows:
        own = row["derivatives"]
        row["derivatives"] = {}
        for name, value in own.items():
            name = SAME.get(name, name)
            row["derivatives"][name] = row["derivatives"].get(name, 0.0) + value
    return rows


def equations(rows):
    """Derivatives, logarithms of measured over predicted, weights, and the constants' names."""
    files = np.array([row["file"] for row in rows])
    names = {
        name
        for row in rows
        for name, value in row["derivatives"].items()
        if abs(value) > 2e-3
    }
    names = sorted(names)
    jacobian = np.array([[row["derivatives"].get(name, 0.0) for name in names] for row in rows])
    logs = np.log([row["measured"] / row["predicted"] for row in rows])
    count = {file: np.sum(files == file) for file in set(files)}
    weights = np.array([count[file] ** -0.6 for file in files])
    return jacobian, logs, weights, names, files


def solve(jacobian, logs, weights, moved):
    """The least sum of absolute errors, by least squares with weights; `moved`: where constants stand."""
    step = np.zeros(jacobian.shape[1])
    for _ in range(40):
        errors = np.abs(logs - jacobian @ step)
        pull = np.where(errors > ODD, 0.0, weights / np.maximum(errors, NOISE))
        prior = PRIOR * pull.sum()
        left = (jacobian.T * pull) @ jacobian + prior * np.eye(len(step))
        step = np.linalg.solve(left, (jacobian.T * pull) @ logs - prior * moved)
    return step


def error(jacobian, logs, step):
    return 100 * np.mean(np.abs(np.exp(jacobian @ step - logs) - 1))


def hold_backward(factors, data):
    """No attention's backward is faster, for its operations, than its forward."""
    table = json.loads((data / "training.json").read_text(encoding="utf-8"))
    for owner, row in table.items():
        names = [f"{owner} attention_{it}" for it in ("forward", "backward")]
        forward, backward = (factors.get(name, 1.0) for name in names)
        ratio = max(b / f for f, b in row["attention"].values())
        if backward * ratio > forward:
            factors[names[1]] = forward / ratio


def fit(folder, data):
    """Factors of constants by owner and name."""
    factors = {}
    for iteration in range(ITERATIONS + 1):
        jacobian, logs, weights, names, files = equations(derivatives(folder, factors))
        moved = np.log([factors.get(name, 1.0) for name in names])
        step = solve(jacobian, logs, weights, moved).clip(-LARGEST_MOVE, LARGEST_MOVE)
        for file in sorted(set(files)):
            of = files == file
            others = solve(jacobian[~of], logs[~of], weights[~of], moved)
            now, left_out = (error(jacobian[of], logs[of], s) for s in (0 * step, others))
            print(f"{file:34} {of.sum():4} rows {now:6.1f} %, left out {left_out:6.1f} %")
        if iteration == ITERATIONS:
            return factors
        for name, move in zip(names, step):
            factors[name] = float(factors.get(name, 1.0) * np.exp(move))
        hold_backward(factors, data)
        print()


def lines(table, text=json.dumps):
    rows = (f"{json.dumps(name)}: {text(row)}" for name, row in table.items())
    return "{\n" + ",\n".join(rows) + "\n}"


def write(path, text):
    path.write_text(text + "\n", encoding="utf-8")


def rounded(value):
    return float(f"{value:.3g}")


# No kernel of a step is much faster than alone; what would make it so is missing elsewhere.
FASTEST = {"matmul": 1.1, "matmul_8_bit": 1.1, "matmul_4_bit": 1.1, "memory": 1.1}


def apply(factors, data):
    path = data / "training.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    for owner, row in table.items():
        for constant, value in row.items():
            if isinstance(value, float):
                name = f"{owner} {constant}"
                moved = value * factors.get(SAME.get(name, name), 1.0)
                row[constant] = rounded(min(moved, FASTEST.get(constant, moved)))
        of = [factors.get(f"{owner} attention_{it}", 1.0) for it in ("forward", "backward")]
        for library, rates in row["attention"].items():
            row["attention"][library] = [rounded(a * b) for a, b in zip(rates, of)]
    write(path, lines(table))
    for path in FRAMEWORKS.glob("*.json"):
        framework = json.loads(path.read_text(encoding="utf-8"))
        for name, factor in factors.items():
            owner, constant = name.split(" ")
            if owner == framework.get("measured_as", framework.get("name")) and "." in constant:
                part, field = constant.split(".")
                framework[part][field] = rounded(framework[part][field] * factor)
        write(path, json.dumps(framework, indent=2))


def write_residuals(folder, data):
    command = [RELEASE / "planner", "validate", folder, "--format", "json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    ratios = {"step_time_seconds": {}, "peak_memory_bytes": {}}
    for file in report["files"]:
        for row in file["rows"]:
            for name in row.get("comparable", []):
                ratio = row["measured"] / row["predicted"]
                ratios[file["quantity"]].setdefault(name, []).append(ratio)
    of_all = {name: spreads(of) for name, of in ratios.items()}
    write(data / "residuals.json", lines(of_all, lines))


def spreads(ratios):
    found = {}
    for name, values in sorted(ratios.items()):
        if len(values) >= LEAST_ROWS:
            # As `Spread::of` counts ranks.
            low, high = np.quantile(values, [0.1, 0.9], method="weibull")
            found[name] = {"rows": len(values), "low": rounded(low), "high": rounded(high)}
    return found


if __name__ == "__main__":
    *only_residuals, runs, constants = sys.argv[1:]
    if only_residuals:
        write_residuals(runs, Path(constants))
    else:
        apply(fit(runs, Path(constants)), Path(constants))
