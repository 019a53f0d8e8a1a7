"""nanotron's dataclasses, as its source has them: it does not import without GPUs, so no parser of its runs here."""

import ast
import importlib.util
from pathlib import Path

import yaml

from plans import equal, layers_of_stages, need, script_arguments

SPEC = importlib.util.find_spec("nanotron")
HOME = Path(next(iter(SPEC.submodule_search_locations))) if SPEC else None


def fields_of(path):
    """Fields of each dataclass of a file: their names, and which must be given."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            lines = [line for line in node.body if isinstance(line, ast.AnnAssign)]
            found[node.name] = {
                line.target.id: (ast.unparse(line.annotation), line.value is None) for line in lines
            }
    return found


def check(plan, folder):
    need(HOME is not None, "nanotron's source is installed")
    command, _ = script_arguments(folder / "nanotron.sh", "torchrun")
    place = command.index("--config-file")
    config = yaml.safe_load(Path(command[place + 1]).read_text())
    known = {}
    for name in ("config.py", "models_config.py", "parallelism_config.py"):
        known.update(fields_of(HOME / "config" / name))
    held("Config", config, known)
    layout, training, description = plan["layout"], plan["training"], plan["model"]["description"]
    parallelism, tokens = config["parallelism"], config["tokens"]
    equal("data parallelism", parallelism["dp"], layout["data_parallel"])
    equal("pipeline parallelism", parallelism["pp"], layout["pipeline_parallel"])
    equal("tensor parallelism", parallelism["tp"], layout["tensor_parallel"])
    equal("ranks", parallelism["dp"] * parallelism["pp"] * parallelism["tp"], plan["num_gpus"])
    equal("sequence parallelism", parallelism["tp_mode"] == "REDUCE_SCATTER", layout["sequence_parallel"])
    batch = tokens["micro_batch_size"] * tokens["batch_accumulation_per_replica"] * parallelism["dp"]
    equal("batch", batch, training["global_batch_size"])
    equal("ZeRO", config["optimizer"]["zero_stage"], layout["zero_stage"])
    equal("sums in fp32", config["optimizer"]["accumulate_grad_in_fp32"], training["fp32_gradients"])
    model = config["model"]["model_config"]
    equal("layers", model["num_hidden_layers"], description["num_hidden_layers"])
    equal("width", model["hidden_size"], description["hidden_size"])
    check_layers(plan, model)


# Which dataclass a key of another has.
WITHIN = {
    "GeneralArgs", "ParallelismArgs", "ModelArgs", "TokenizerArgs", "CheckpointsArgs", "LoggingArgs", "TokensArgs",
    "OptimizerArgs", "DataArgs", "ProfilerArgs", "LRSchedulerArgs",
}


def held(name, given, known):
    """Every key is a field, and every field that must be given is (`dacite` is strict)."""
    fields = known[name]
    equal(f"keys of {name} that are no fields", sorted(set(given) - set(fields)), [])
    needed = {field for field, (kind, is_needed) in fields.items() if is_needed}
    equal(f"fields of {name} that are missing", sorted(needed - set(given)), [])
    for field, value in given.items():
        kind = fields[field][0]
        inner = next((other for other in WITHIN if other in kind), None)
        if field == "model_config":
            inner = "LlamaConfig"
        if field == "init_method":
            inner = "RandomInit"
        if inner and isinstance(value, dict):
            held(inner, value, known)
        elif "int" in kind and "Union" not in kind and value is not None and not isinstance(value, (int, str)):
            need(False, f"{name}.{field} is {value!r}, not {kind}")


def check_layers(plan, model):
    """`build_model` and `get_block_compute_costs`, as its source has them."""
    pipeline = plan["layout"]["pipeline_parallel"]
    width = model["hidden_size"]
    layer = 4 * width * width + 3 * model["intermediate_size"] * width
    costs = [0, *[layer] * model["num_hidden_layers"], 0, model["vocab_size"] * width]
    total, so_far, stage = sum(costs), 0, 0
    layers = [0] * pipeline
    for index, cost in enumerate(costs):
        layers[stage] += 0 < index <= model["num_hidden_layers"]
        so_far += cost
        if so_far > total * ((stage + 1) / pipeline):
            stage += 1
    equal("layers of stages", layers, layers_of_stages(plan))
