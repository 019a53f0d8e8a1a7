"""The Trainer's own parser, held against a plan."""

import json

from transformers import AutoConfig, HfArgumentParser, TrainingArguments

import of_accelerate
from plans import equal, need


def check(plan, folder):
    of_accelerate.check(plan, folder, "trainer")
    given = json.loads((folder / "training_arguments.json").read_text())
    # What the parser lets pass.
    need(given["gradient_accumulation_steps"] > 0, "micro-batches")
    layout, training = plan["layout"], plan["training"]
    # No GPU here: what is said of 16 bits is read from the file.
    precision = {key: given.pop(key) for key in ("bf16", "fp16")}
    import os

    for name in [name for name in os.environ if name.startswith(("ACCELERATE", "FSDP", "PARALLELISM"))]:
        del os.environ[name]
    (arguments,) = HfArgumentParser((TrainingArguments,)).parse_dict({**given, "use_cpu": True})
    equal("micro-batch", arguments.per_device_train_batch_size, layout["micro_batch_size"])
    equal("micro-batches", arguments.gradient_accumulation_steps, layout["num_micro_batches"])
    equal("bf16", precision["bf16"], training["precision"] in ("bf16", "fp8"))
    equal("fp16", precision["fp16"], training["precision"] == "fp16")
    config = AutoConfig.from_pretrained(folder)
    equal("width", config.hidden_size, plan["model"]["description"].get("hidden_size", config.hidden_size))
