"""Changes configurations of `families.py` at random, and records the training of those that transformers runs.

    python mutated.py FOLDER COUNT [SEED]

Needs the packages that README.md names; takes a second for five configurations on one core. The records are like
those of `families.py`, but of three steps. `MUTATED=FOLDER cargo test -p executor-runtime --test it -- mutated`
compares the executor with them.
"""

import contextlib
import copy
import json
import math
import random
import sys
import warnings
from pathlib import Path

import families
import torch
import transformers
from families import CONFIGS, rounded, train
from make import in_precision

NUM_STEPS = 3
MOST_TRIES = 12  # for each configuration that is recorded
LARGEST_SIZE = 5000

ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "quick_gelu", "tanh", "sigmoid", "gelu_fast"]
WIDTHS = ["hidden", "intermediate", "n_embd", "d_model", "d_ff", "n_inner", "ffn_dim"]
EXPERTS = ["expert", "n_group", "topk_group"]
# Fields that name the model, that the data depend on, or that transformers reads differently than it says.
KEPT = ["architectures", "model_type", "label", "vocab_size", "pad_token_id", "layer_types", "router_jitter_noise"]
KEPT += ["max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "scoring_func", "topk_method"]
KEPT += ["rope_type", "output_router_logits", "drop", "moe_layer_freq"]


def is_any(name, parts):
    return any(part in name for part in parts)


def change(config, name):
    """Gives a field another value of its kind."""
    value = config[name]
    match value:
        case bool():
            config[name] = not value
        case int() if is_any(name, ["layers", "n_layer"]):
            config[name] = random.choice([1, 2, 3])
        case int() if "head" in name and "dim" not in name:
            config[name] = random.choice([1, 2, 4, 8])
        case int() if "window" in name:
            config[name] = random.choice([None, 2, 3, 7, 20])
        case int() if is_any(name, EXPERTS):
            config[name] = random.choice([1, 2, 3, 4, 6, 8])
        case int() if is_any(name, WIDTHS):
            config[name] = random.choice([16, 24, 32, 40, 48, 64])
        case int():
            config[name] = random.choice([max(1, value // 2), 2 * value, value + 1, value + 2, 1, 2, 3, 4, 8])
        case float() if value > 100.0:
            config[name] = random.choice([2 * value, value / 2])
        case float():
            config[name] = random.choice([2 * value, value / 2, value + 0.5, 1.0, 0.25, value + 1e-3])
        case str() if "act" in name or value in ACTIVATIONS:
            config[name] = random.choice(ACTIVATIONS)
        case None:
            config[name] = random.choice([None, 2, 8, 0.5, 16])
        case dict():
            inner = [field for field in value if not is_any(field, KEPT)]
            if inner:
                change(value, random.choice(inner))


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(seed)
    families.NUM_STEPS = NUM_STEPS
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    recorded = 0
    for _ in range(MOST_TRIES * count):
        if recorded == count:
            break
        name = random.choice(list(CONFIGS))
        config = copy.deepcopy(CONFIGS[name])
        fields = [field for field in config if not is_any(field, KEPT)]
        for _ in range(random.choice([1, 1, 2, 3])):
            change(config, random.choice(fields))
        sizes = [value for value in config.values() if isinstance(value, int)]
        if config == CONFIGS[name] or max(sizes) > LARGEST_SIZE:
            continue
        # Releases from 5 on take `rope_theta` for layers without a window alone, though all have it.
        if config["model_type"] == "olmo3" and config["rope_theta"] != CONFIGS[name]["rope_theta"]:
            continue
        # Whether chosen experts have biases too differs between releases of the library.
        if config["model_type"] == "deepseek_v2" and config["mlp_bias"]:
            continue
        # Most configurations that fail do so each in its own way.
        with contextlib.suppress(Exception), in_precision(torch.float64):
            record = train(config, torch.float64)
            if all(map(math.isfinite, record["losses"])):
                text = json.dumps(rounded(record))
                (folder / f"{name}-{seed}-{recorded}.json").write_text(text)
                recorded += 1
    print(f"{recorded} configurations")


if __name__ == "__main__":
    main()
