"""What checks of exports share: plans, the groups of their ranks, and the arguments of scripts."""

import os
import subprocess
import tempfile
import traceback
from pathlib import Path


class Refused(Exception):
    """An export is not what its plan says, or its tool does not take it."""


class NotTriable(Exception):
    """What cannot be tried without a GPU, and why."""


def need(holds, what):
    if not holds:
        raise Refused(what)


def equal(what, actual, expected):
    need(actual == expected, f"{what}: {actual}, but the plan has {expected}")


def ranks_to_try(plan):
    """A rank of the first stages, of middle ones, and of the last."""
    world, pipeline = plan["num_gpus"], plan["layout"]["pipeline_parallel"]
    return sorted({stage * world // pipeline for stage in (0, pipeline // 2, pipeline - 1)})


def apart(work):
    """Does it in a process of its own, and fails with what it fails with there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        said = ""
        try:
            work()
        except NotTriable as why:
            said = f"?{why}"
        except BaseException as error:  # Tools end the process where they refuse.
            # What looks at contents finds none.
            is_of_trial = type(error).__module__ == "torch._subclasses.fake_tensor"
            said = f"{'?' if is_of_trial else '!'}{what_was_said(error)}"
        with os.fdopen(writer, "w") as pipe:
            pipe.write(said)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if said.startswith("?"):
        raise NotTriable(said[1:])
    need(not said, said[1:])
    need(status == 0, f"the process ended with status {status}")


def what_was_said(error):
    """A refusal in one line, and the line of code that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [it for it in frames if "/site-packages/" in it.filename and "/site-packages/torch/" not in it.filename]
    places = [f"{it.filename.split('/site-packages/')[-1]}:{it.lineno}" for it in [*own[-1:], frames[-1]]]
    what = " ".join(str(error).split()) or frames[-1].line
    return f"{type(error).__name__}: {what} [{', '.join(dict.fromkeys(places))}]"


def small_model(plan):
    """The model as transformers has it, with its heads and two layers, but narrow."""
    import transformers

    description = plan["model"]["description"]
    if description.get("model_type") not in transformers.CONFIG_MAPPING:
        raise NotTriable("the model is none of transformers")
    config = transformers.AutoConfig.for_model(**description)
    for name in ("num_hidden_layers", "num_decoder_layers"):
        if getattr(config, name, None):
            setattr(config, name, 2)
    if hasattr(config, "first_k_dense_replace"):
        config.first_k_dense_replace = 1
    # What is computed again would add keys and values to those that are there.
    config.use_cache = False
    for name in ("layer_types", "mlp_only_layers"):
        if getattr(config, name, None):
            setattr(config, name, getattr(config, name)[:2])
    # Heads of latent attention have parts, each of a width of its own.
    if not hasattr(config, "kv_lora_rank"):
        config.hidden_size = 16 * config.num_attention_heads
        if "head_dim" in config.to_dict():
            config.head_dim = 16
        if hasattr(config, "rotary_dim"):
            config.rotary_dim = 16
    config.vocab_size = 1024
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        setattr(config, name, 0)
    for name in ("intermediate_size", "moe_intermediate_size"):
        if getattr(config, name, None):
            # A multiple of 16, as its products take no other.
            size = getattr(config, name)
            setattr(config, name, next((size // by for by in (16, 8, 4, 2) if size % (16 * by) == 0), size))
    kinds = [transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM]
    kind = next(kind._model_mapping[type(config)] for kind in kinds if type(config) in kind._model_mapping)
    for name in description.get("architectures") or []:
        kind = getattr(transformers, name, kind)
    return kind._from_config(config)


def groups_of(plan):
    """Groups of ranks by axis, in the planner's order: tensor, context, data, pipeline, fastest first."""
    layout = plan["layout"]
    world = plan["num_gpus"]
    tensor, context = layout["tensor_parallel"], layout["context_parallel"]
    data, pipeline = layout["data_parallel"], layout["pipeline_parallel"]
    expert, expert_tensor = layout["expert_parallel"], layout["expert_tensor_parallel"]
    stage = tensor * context * data

    def groups(size, stride, within=None):
        within = within or size * stride
        firsts = [
            base + offset + inner
            for base in range(0, world, within)
            for offset in range(0, within, size * stride)
            for inner in range(stride)
        ]
        return [[first + step * stride for step in range(size)] for first in firsts]

    return {
        "tensor": groups(tensor, 1),
        "context": groups(context, tensor),
        "data": groups(data, tensor * context),
        "replicas": groups(context * data, tensor),
        "shard": groups(layout["zero_shard"], tensor, stage),
        "pipeline": groups(pipeline, stage),
        "expert": groups(expert, expert_tensor, stage),
        "expert tensor": groups(expert_tensor, 1),
    }


def layers_of_stages(plan):
    """Layers of each stage, in the order of the model; embedding and head are blocks but not layers."""
    last = len(plan["stages"]) - 1
    modules = 0
    if plan["model"]["multi_token_prediction"]:
        modules = plan["model"]["description"].get("num_nextn_predict_layers") or 0
    counts = []
    for index, stage in enumerate(plan["stages"]):
        ends = (index == 0) + (index == last)
        counts.append(stage["num_blocks"] - ends)
    # Modules stand before the head.
    place = last
    while modules:
        taken = min(modules, counts[place])
        counts[place] -= taken
        modules -= taken
        place -= 1
    return counts


def script_arguments(script, program, variables=None):
    """The words that a script gives a program, and the environment that it makes, as a shell has them."""
    need(script.exists(), f"no {script.name}")
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder) / program
        stand_in.write_text('#!/bin/bash\nprintf "%s\\0" "$@" >"$SEEN.words"\nenv -0 >"$SEEN.environment"\n')
        stand_in.chmod(0o755)
        seen = f"{folder}/seen"
        before = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SEEN": seen,
            "NODE_RANK": "0",
            "MASTER_ADDR": "n0",
            **(variables or {}),
        }
        ran = subprocess.run(["bash", str(script)], env=before, capture_output=True, text=True)
        need(ran.returncode == 0, f"the script ends with {ran.returncode}: {ran.stderr}")
        words = Path(f"{seen}.words").read_text().split("\0")[:-1]
        pairs = Path(f"{seen}.environment").read_text().split("\0")[:-1]
        made = dict(pair.split("=", 1) for pair in pairs)
        return words, {name: value for name, value in made.items() if before.get(name) != value}
