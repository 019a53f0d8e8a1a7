"""Fits the constants of whole steps to measured steps, and prints the errors on sources that were left out.

    cargo build --release -p planner -p planner-evidence --example fit_steps --bin planner
    python fit_steps.py FOLDER_WITH_RUNS

Needs numpy. Writes the constants of GPUs, networks and frameworks to `../frameworks/fitted.json`. Then, after another
build, `python fit_steps.py --residuals FOLDER_WITH_RUNS` writes there how measured steps are distributed about
predictions that were made without their source.

The logarithm of a step's time is, near any set of constants, linear in their logarithms. Each constant is normal about
the mean of its kind (all GPUs, or a family of frameworks), and that mean is normal about its prior
(`../data/priors.json`, with reasons). A source has its own spread, as machines differ; errors within a source have long
tails. The most likely constants are found by weighted least squares, which is repeated about the new constants. Few
rows move a constant little.

For each source, everything is fitted again without it, and its steps are predicted with that fit: `left_out` has the
constants that differ. These errors, not those of the fit, are what another source may expect.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait for each other where cores are few

import numpy as np  # noqa: E402

FITTED = Path(__file__).parents[1] / "frameworks" / "fitted.json"
RELEASE = Path(__file__).parents[2] / "target" / "release"
PRIORS = json.loads((Path(__file__).parents[1] / "data" / "priors.json").read_text(encoding="utf-8"))
UNFITTED = Path(__file__).parents[2] / "traces" / "unfitted"
ITERATIONS = 2
CONSTANTS = {}
UNKNOWN = "unknown"
HELD = 1e6  # the precision of a constant that is held at the end of its range
LEAST_CHANGE = 0.005  # of a constant in `left_out`
CHANGE = 1e-4  # of the logarithms, below which the weights have converged

# Rows that no constant is fitted to: DeepSpeed of 2021, whose gathers reach a tenth of the links' bandwidth; a run that
# fills 98 % of its GPUs' memory, and takes twice as long as the same run at 85 %; a trainer of 2022 whose fp32 weights
# are cast in each pass and whose optimizer loops over parameters, neither of which is in the model.
OTHER_CAUSES = ["sc21_t2_z3", "ttgb_q32b_fsdp4_rep2", "_hf_z0_"]

# Sources whose peaks were read from `nvidia-smi`, with the memory that the allocator keeps in its cache and could free.
WITH_CACHES = ["bigscience", "bigscience_v100", "dlperf_gpt", "flagperf"]

OF_SEVERAL_FILES = """
alpa dgxc flagperf lumen megatron_bridge mlperf mosaic_llm_foundry named_models oellm qwen_finetune vtrain
""".split()


def source(file):
    """The source of a file of rows, as `planner/evidence/src/validation/left_out.rs` has it."""
    name = file.removeprefix("runs_").rsplit(".", 1)[0]
    return next((several for several in OF_SEVERAL_FILES if name.startswith(several)), name)


def is_of_second_half(name):
    """A fixed half of the sources, by name: mechanisms are chosen on the first half, and reported on the second."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def steps(folder, values, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        command = [RELEASE / "examples" / "fit_steps", folder, file.name, *flags]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def own_files(folder, name, own):
    """Links in the folder `own` to the files of a source."""
    (Path(own) / "runs").mkdir()
    for file in (Path(folder) / "runs").iterdir():
        if source(file.name) == name:
            (Path(own) / "runs" / file.name).symlink_to(file.resolve())


def family(owner):
    of = (name for name, members in PRIORS["families"].items() if owner in members)
    return next(of, "gpu")


def known(key, value):
    """A property of a constant, from `../src/constants.rs`: its `range`, or its `spread`."""
    if not CONSTANTS:
        command = [RELEASE / "examples" / "fit_steps", "--constants"]
        CONSTANTS.update(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    name = key.split(" ")[1]
    # Before the point is a library of attention, or a part of a framework's file.
    return CONSTANTS.get(name, CONSTANTS.get(name.split(".")[-1]))[value]


def prior(key):
    """The centre of a constant and its spreads: that of the mean of its kind, and that about this mean."""
    owner, name = key.split(" ")
    of = PRIORS["constants"].get(name)
    if of is None:
        library, direction = name.split(".")
        attention = PRIORS["attention"]
        return attention[library][owner][direction == "backward"], 0.0, known(key, "spread")
    power = PRIORS["power"]
    hosts = PRIORS["hosts"]
    if name == "host" and owner in hosts["of"]:
        return of["centre"], of["spread_of_kind"], hosts["spread"]
    if not name.startswith("matmul"):
        return of["centre"], of["spread_of_kind"], known(key, "spread")
    ceilings = PRIORS["ceilings"]
    of_gpu = power.get(owner, 1.0) ** power["exponent"] * ceilings.get(owner, 1.0)
    spread = ceilings["spread"] if owner in ceilings else known(key, "spread")
    return of["centre"] * of_gpu, of["spread_of_kind"], spread


class Linear:
    """Steps as linear functions of the constants' logarithms, about their current values."""

    def __init__(self, rows):
        self.keys = sorted({key for row in rows for key in row["derivatives"]})
        self.sources = np.array([source(row["file"]) for row in rows])
        self.counts = ~np.array([any(it in row["id"] for it in OTHER_CAUSES) for row in rows])
        self.jacobian = np.array([[row["derivatives"].get(key, 0.0) for key in self.keys] for row in rows])
        self.predicted = np.log([row["predicted"] for row in rows])
        self.measured = np.log([row["measured"] for row in rows])
        value = {key: value for row in rows for key, value in row["values"].items()}
        self.at = np.log([value[key] for key in self.keys])
        priors = [prior(key) for key in self.keys]
        self.centre = np.log([it[0] for it in priors])
        kinds = {}
        for key, (_, of_kind, _) in zip(self.keys, priors):
            owner, name = key.split(" ")
            if of_kind > 0.0:
                kinds.setdefault((family(owner), name), []).append(key)
        self.kinds = np.array([[float(key in members) for members in kinds.values()] for key in self.keys])
        self.kind_names = [(name, of_kind) for of_kind, name in kinds]
        of_kinds = [prior(members[0])[1] for members in kinds.values()]
        ranges = np.log([known(key, "range") for key in self.keys])
        self.ranges = ranges.T - self.centre
        self.precision = np.array([*of_kinds, *(it[2] for it in priors)]) ** -2.0

    def solve(self, without=None):
        """The most likely logarithms of the constants, with one source left out, and those of the means of kinds."""
        keep = self.counts & (self.sources != without)
        sources = sorted(set(self.sources[keep]))
        of_source = self.sources[keep][:, None] == np.array(sources)
        jacobian = self.jacobian[keep]
        left = np.hstack([jacobian @ self.kinds, jacobian, of_source])
        spread = np.full(len(sources), PRIORS["spread_of_sources"])
        precision = np.concatenate([self.precision, spread**-2.0])
        right = (self.measured - self.predicted)[keep] + jacobian @ (self.at - self.centre)
        within = PRIORS["spread_within_a_source"]
        # Rows of one source are alike, so together they count less than the same number of rows of several sources.
        alike = of_source @ (of_source.sum(axis=0) ** -0.4) / within**2
        found = np.zeros(left.shape[1])
        of_constants = np.hstack([self.kinds, np.eye(len(self.keys)), np.zeros((len(self.keys), len(sources)))])
        held = np.zeros(len(self.keys))
        bounds = np.zeros(len(self.keys))
        for _ in range(30):
            weights = alike / (1.0 + ((right - left @ found) / (2.0 * within)) ** 2)
            normal = (left.T * weights) @ left + (of_constants.T * held) @ of_constants + np.diag(precision)
            before = found
            found = np.linalg.solve(normal, (left.T * weights) @ right + of_constants.T @ (held * bounds))
            # A constant that would leave its range is held at the end of it, and the others take the rest.
            at = of_constants @ found
            inside = np.clip(at, *self.ranges)
            bounds = np.where(at == inside, bounds, inside)
            held = np.where(at == inside, held, HELD)
            if np.abs(found - before).max() < CHANGE:
                break
        return np.clip(self.centre + at, *(it + self.centre for it in self.ranges)), found[: self.kinds.shape[1]]

    def values(self, solved):
        """Constants by key; constants of an unknown framework are the means over families."""
        logarithms, of_kinds = solved
        means = {}
        for (name, of_kind), it in zip(self.kind_names, of_kinds):
            if of_kind != "gpu":
                means.setdefault(name, []).append(np.log(PRIORS["constants"][name]["centre"]) + it)
        unknown = {f"{UNKNOWN} {name}": np.mean(of) for name, of in means.items()}
        found = dict(zip(self.keys, logarithms)) | unknown
        return {key: rounded(float(np.exp(it))) for key, it in found.items()}


def rounded(value):
    return float(f"{value:.3g}")


def error(rows):
    return 100.0 * np.mean([abs(row["predicted"] / row["measured"] - 1.0) for row in rows])


def fit(folder):
    """Constants, and for each source the constants fitted without it."""
    values = {}
    for _ in range(ITERATIONS):
        linear = Linear(steps(folder, values))
        values = linear.values(linear.solve())
    without = {it: linear.values(linear.solve(it)) for it in sorted(set(linear.sources))}
    fitted = steps(folder, values, "--no-derivatives")
    print(f"{'source':20} steps  fitted  left out")
    errors = {}
    for name, others in without.items():
        own = [row for row in fitted if source(row["file"]) == name]
        with tempfile.TemporaryDirectory() as files:
            own_files(folder, name, files)
            left_out = steps(files, others, "--no-derivatives")
        errors[name] = (error(own), error(left_out))
        print(f"{name:20} {len(own):5} {errors[name][0]:5.1f} % {errors[name][1]:7.1f} %")
    for half in ("first", "second"):
        of_half = [it for name, it in errors.items() if is_of_second_half(name) == (half == "second")]
        print("{:21} half {:10.1f} % {:7.1f} %".format(half, *np.mean(of_half, axis=0)))
    print("mean of sources            {:5.1f} % {:7.1f} %".format(*np.mean(list(errors.values()), axis=0)))
    print(f"mean of steps              {error(fitted):5.1f} %")
    return values, without


def read_fitted():
    return json.loads(FITTED.read_text(encoding="utf-8"))


def write_fitted(fitted):
    """Writes all sections, one entry on a line."""
    sections = []
    for name, entries in fitted.items():
        rows = (f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items())
        sections.append(f"{json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n}")
    FITTED.write_text("{\n" + ",\n".join(sections) + "\n}\n", encoding="utf-8")


def apply(values, without):
    """Replaces the constants in the file; a constant that the file does not have is not one of its owner's."""
    fitted = read_fitted()
    for owner, row in fitted["gpus"].items():
        for name in row:
            row[name] = values.get(f"{owner} {name}", row[name])
        for library, rates in row["attention"].items():
            keys = [f"{owner} {library}.{it}" for it in ("forward", "backward")]
            row["attention"][library] = [values.get(key, rate) for key, rate in zip(keys, rates)]
    of_all = [(owner, fitted[owner]) for owner in ("all_gpus", "network")]
    for owner, row in [*of_all, *fitted["frameworks"].items()]:
        for name in row:
            row[name] = values.get(f"{owner} {name}", row[name])
    memory = PRIORS["memory_without"]
    fitted["left_out"] = {
        name: {key: it for key, it in others.items() if abs(it / values[key] - 1.0) > LEAST_CHANGE}
        | memory.get(name, {})
        for name, others in without.items()
    }
    write_fitted(fitted)


def write_residuals(folder):
    """Spreads of the scores of rows that are predicted without their source, by what is known of their stack.

    Sources that no constant was fitted to count too, as nobody chose a mechanism by them.
    """
    report, further = validated(folder), validated(UNFITTED)
    as_unknown = [validated(files, "--framework", UNKNOWN) for files in (folder, UNFITTED)]
    written = {}
    for quantity in ["step_time_seconds", "peak_memory_bytes"]:
        of_fit = rows_of(quantity, report)
        kinds = {"measured": {}, "new": {}, "calibrated": {}, "unknown": {}}
        for name, stacks in rows_of(quantity, *as_unknown).items():
            kinds["unknown"][name] = [score for of in stacks.values() for score in scores(of)]
        for name, stacks in rows_of(quantity, report, further).items():
            for stack, of in stacks.items():
                known = any(stack in others for other, others in of_fit.items() if other != name)
                if known:
                    kinds["measured"].setdefault(name, []).extend(scores(of))
                kinds["new"].setdefault(name, []).extend(scores(of))
                kinds["calibrated"].setdefault(name, []).extend(scores(after_three(of)))
        stacks = sorted({stack for of in of_fit.values() for stack in of})
        spreads = {kind: spread(of) for kind, of in kinds.items() if any(of.values())}
        written[quantity] = {"stacks": stacks, "spreads": spreads}
    write_fitted(read_fitted() | {"residuals": written})


def validated(folder, *flags):
    command = [RELEASE / "planner", "validate", folder, "--format", "json", *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def rows_of(quantity, *reports):
    """The logarithm of measured over predicted and its standard deviation, by source and stack."""
    rows = {}
    for file in (file for report in reports for file in report["files"]):
        if file["quantity"] != quantity:
            continue
        if quantity == "peak_memory_bytes" and source(file["file"]) in WITH_CACHES:
            continue
        for row in file["rows"]:
            if "measured" in row:
                log = np.log(row["measured"] / row.get("left_out", row["predicted"]))
                of_source = rows.setdefault(source(file["file"]), {})
                of_source.setdefault(row["stack"], []).append((log, row["deviation"]))
    return rows


def scores(rows):
    return [log / deviation for log, deviation in rows]


def after_three(rows):
    """Each of a stack's logarithms less the mean of three others: what is left once these three are known."""
    count = len(rows)
    if count < 4:
        return []
    three = [np.mean([rows[(row + part * count // 4) % count][0] for part in (1, 2, 3)]) for row in range(count)]
    return [(log - mean, deviation) for (log, deviation), mean in zip(rows, three)]


def spread(by_source):
    """As `Spread::of`: quantiles with as much weight for each source."""
    by_source = [of for of in by_source.values() if of]
    values = np.concatenate(by_source)
    weights = np.concatenate([np.full(len(of), 1.0 / (len(of) * len(by_source))) for of in by_source])
    order = np.argsort(values)
    at = np.cumsum(weights[order]) - weights[order] / 2.0
    tail = max(0.0, ((len(by_source) + 1) * 0.1 - 0.5) / len(by_source))
    low, high, ninth = (rounded(it) for it in np.interp([tail, 1.0 - tail, 0.9], at, values[order]))
    return {"sources": len(by_source), "rows": len(values), "low": low, "high": high, "ninth_decile": ninth}


if __name__ == "__main__":
    *only_residuals, runs = sys.argv[1:]
    if only_residuals:
        write_residuals(runs)
    else:
        apply(*fit(runs))
