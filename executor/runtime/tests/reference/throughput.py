"""Measures how many tokens per second PyTorch trains on this machine's CPU.

    python throughput.py throughput/config.json --threads 2

A step is the same as the executor's: forward, mean cross-entropy over all positions, backward, AdamW.
Attention is PyTorch's fused kernel. With `--dtype bfloat16`, parameters, gradients and optimizer
state stay float32, and autocast computes in bfloat16. Prints JSON; needs the packages that README.md
names.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import transformers

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="a config.json")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step")
    parser.add_argument("--sequence", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=10, help="steps that count")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before them")
    return parser.parse_args()


def main():
    args = arguments()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(args.config)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    autocast = torch.autocast("cpu", DTYPES[args.dtype], enabled=args.dtype != "float32")

    def step():
        tokens = torch.randint(config.vocab_size, (args.batch, args.sequence + 1))
        start = time.perf_counter()
        with autocast:
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start

    for _ in range(args.warm_up):
        step()
    times = [step() for _ in range(args.steps)]
    median = statistics.median(times)
    num_tokens = args.batch * args.sequence
    report = {
        "config": str(args.config),
        "dtype": args.dtype,
        "threads": args.threads,
        "batch_size": args.batch,
        "sequence_length": args.sequence,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "median_step_time_seconds": median,
        "least_step_time_seconds": min(times),
        "tokens_per_second": num_tokens / median,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
