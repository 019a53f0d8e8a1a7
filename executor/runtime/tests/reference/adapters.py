"""Opens exported adapters with peft, and compares them with the merged export.

    python adapters.py

Needs the packages that README.md names, and `planner` and `executor` on the path; takes a minute. For each
model here it trains adapters from `model.safetensors`, exports them both alone and merged, and compares the
logits of transformers: those of the base with adapters as peft loads them, and those of the merged model.
"""

import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import peft
import torch
import transformers

HERE = Path(__file__).parent
ALL = None

# Model, and which of its linear layers have adapters.
CASES = [
    ("llama", ALL),
    ("llama", "q_proj,down_proj"),
    ("llama3", ALL),
    ("mixtral", ALL),
    ("mixtral", "down_proj"),
    ("mixtral", "q_proj,o_proj"),
    # Queries, keys and values are one layer, for which peft has one adapter.
    ("gpt2", "o_proj"),
    ("gpt2", "up_proj,down_proj"),
]

# transformers and peft cannot read these.
REFUSED = [("gpt2", ALL), ("mixtral", "up_proj,gate_proj")]

LARGEST_DIFFERENCE = 1e-5


def command(folder, *words, check=True):
    words = list(map(str, words))
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\n{done.stderr}")
    return done


def train(folder, model, targets):
    """Leaves a plan and a checkpoint in `folder`."""
    targets = [] if targets is ALL else ["--lora-targets", targets]
    command(
        folder, "planner", "evaluate", HERE / model / "config.json", "--gpus", 2, "--layout", "tp2",
        "--global-batch-size", 4, "--seq-len", 32, "--precision", "fp32", "--lora-rank", 4, "--lora-alpha", 8,
        *targets, "-o", "plan.json",
    )
    command(
        folder, "executor", "run", "plan.json", "--weights", HERE / model, "--steps", 20,
        "--learning-rate", 1e-2, "--checkpoint", "kept",
    )


def export(folder, model, *arguments, check=True):
    words = ["executor", "export", "kept", "plan.json", "--weights", HERE / model, *arguments]
    return command(folder, *words, check=check)


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def compare(folder, model):
    """The largest differences between logits: those that adapters make, and those that merging makes."""
    adapter, merged = folder / "adapter", folder / "merged"
    for made in (adapter, merged):
        made.mkdir()
    export(folder, model, "--adapters", "-o", adapter / "adapter_model.safetensors")
    export(folder, model, "-o", merged / "model.safetensors")
    shutil.copy(HERE / model / "config.json", merged)
    tokens = torch.arange(64).reshape(2, 32) * 3 % 256
    with torch.no_grad(), warnings.catch_warnings():
        # peft only warns of layers whose adapters it does not find.
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        base = load(HERE / model)(tokens).logits
        adapted = peft.PeftModel.from_pretrained(load(HERE / model), adapter).eval()(tokens).logits
        whole = load(merged)(tokens).logits
    return (adapted - base).abs().max().item(), (adapted - whole).abs().max().item()


def main():
    transformers.utils.logging.disable_progress_bar()
    for model, targets in CASES:
        with tempfile.TemporaryDirectory() as folder:
            train(folder, model, targets)
            changed, difference = compare(Path(folder), model)
        print(f"{model}, {targets or 'all'}: adapters change logits by {changed:.2f}, merged by {difference:.1e} from that")
        assert changed > 0.1 and difference < LARGEST_DIFFERENCE
    for model, targets in REFUSED:
        with tempfile.TemporaryDirectory() as folder:
            train(folder, model, targets)
            done = export(folder, model, "--adapters", "-o", "x.safetensors", check=False)
        print(f"{model}, {targets or 'all'}: {done.stderr.strip()}")
        assert done.returncode == 2 and done.stderr.startswith("error: peft")


if __name__ == "__main__":
    main()
