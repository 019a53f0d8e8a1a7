"""Llama 3.2 1B in PyTorch, to compare the executor with: its training on one GPU, and the times of its operators.

    llama.py train [--mode eager|compile] [--micro-batch N] [--accumulate N] [--recompute] [--profile]
    llama.py kernels

Prints JSON. Weights are fp32 and products bf16 (autocast), so that states take the executor's 16 bytes a parameter.
"""

import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SIZES = {
    "llama-3.2-1b": dict(layers=16, hidden=2048, heads=32, kv_heads=8, intermediate=8192, vocab=128256),
    "tiny": dict(layers=2, hidden=64, heads=4, kv_heads=2, intermediate=128, vocab=512),
}


class Norm(nn.RMSNorm):
    """With its weight in the activations' precision, the only one for which PyTorch has a fused kernel."""

    def __init__(self, width):
        super().__init__(width, eps=1e-5)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.kv_heads, self.size = s["heads"], s["kv_heads"], s["hidden"] // s["heads"]
        kv = self.kv_heads * self.size
        linear = lambda a, b: nn.Linear(a, b, bias=False)
        self.attention_norm, self.norm = Norm(s["hidden"]), Norm(s["hidden"])
        self.q, self.k, self.v = linear(s["hidden"], s["hidden"]), linear(s["hidden"], kv), linear(s["hidden"], kv)
        self.o = linear(s["hidden"], s["hidden"])
        self.gate, self.up = linear(s["hidden"], s["intermediate"]), linear(s["hidden"], s["intermediate"])
        self.down = linear(s["intermediate"], s["hidden"])

    def forward(self, x, cos, sin):
        y = self.attention_norm(x)
        heads = lambda t, count: t.unflatten(-1, (count, self.size)).transpose(1, 2)
        q, k, v = heads(self.q(y), self.heads), heads(self.k(y), self.kv_heads), heads(self.v(y), self.kv_heads)
        y = attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.o(y.transpose(1, 2).flatten(-2))
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, s, recompute=False):
        super().__init__()
        self.embedding = nn.Embedding(s["vocab"], s["hidden"])
        self.blocks = nn.ModuleList(Block(s) for _ in range(s["layers"]))
        self.norm = Norm(s["hidden"])
        self.size, self.recompute = s["hidden"] // s["heads"], recompute
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        cos, sin = angles(tokens.shape[1], self.size, tokens.device)
        x = self.embedding(tokens).to(torch.bfloat16)
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False) if self.recompute else block(x, cos, sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def angles(length, size, device):
    inverse = 500000.0 ** (-torch.arange(0, size, 2, device=device) / size)
    angle = torch.outer(torch.arange(length, device=device), inverse).repeat(1, 2)
    return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)


def rotate(x, cos, sin):
    one, other = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-other, one), dim=-1) * sin


class Clock:
    """Times of work: on a GPU by its events, on the CPU by the clock."""

    def __init__(self, device):
        self.is_gpu = device == "cuda"

    def wait(self):
        if self.is_gpu:
            torch.cuda.synchronize()

    def seconds(self, run, times=10, warm_ups=3):
        """The median time of `times` calls, after `warm_ups` calls that are not timed."""
        for _ in range(warm_ups):
            run()
        self.wait()
        found = []
        for _ in range(times):
            if not self.is_gpu:
                start = time.perf_counter()
                run()
                found.append(time.perf_counter() - start)
                continue
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            # This hides the time that the host takes to launch.
            torch.cuda._sleep(2_000_000)
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(end) / 1e3)
        return statistics.median(found)


def train(args):
    torch.manual_seed(0)
    clock, sizes = Clock(args.device), SIZES[args.model]
    model = Llama(sizes, args.recompute).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1, fused=args.device == "cuda")
    loss_of = torch.compile(model) if args.mode == "compile" else model
    shape = (args.accumulate, args.micro_batch, args.sequence + 1)
    tokens = torch.randint(0, sizes["vocab"], shape, device=args.device)

    def step():
        total = 0.0
        for batch in tokens:
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = loss_of(batch[:, :-1], batch[:, 1:]) / args.accumulate
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    losses, times = [], []
    for nth in range(args.warm_ups + args.steps):
        clock.wait()
        start = time.perf_counter()
        losses.append(step().item())
        clock.wait()
        if nth >= args.warm_ups:
            times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    tokens_of_step = args.accumulate * args.micro_batch * args.sequence
    report = dict(
        mode=args.mode, micro_batch=args.micro_batch, accumulate=args.accumulate, recompute=args.recompute,
        step_seconds=seconds, all_seconds=times, tokens_per_second=tokens_of_step / seconds, losses=losses,
        parameters=sum(p.numel() for p in model.parameters()), torch=torch.__version__)
    if clock.is_gpu:
        report["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        report["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
    if args.profile:
        report["kernels"] = kernels_of(step, clock)
    print(json.dumps(report))


def kernels_of(step, clock):
    """The time of each kernel of a step: its name, its number of launches, and its microseconds in all."""
    from torch.profiler import ProfilerActivity, profile

    activity = ProfilerActivity.CUDA if clock.is_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as found:
        step()
        clock.wait()
    time_of = lambda row: row.self_device_time_total if clock.is_gpu else row.self_cpu_time_total
    rows = [(row.key, row.count, time_of(row)) for row in found.key_averages()]
    return sorted((row for row in rows if row[2] > 0), key=lambda row: -row[2])


def report(kind, shape, seconds, **more):
    print(json.dumps(dict(kind=kind, **shape, time_us=round(seconds * 1e6, 3), **more)), flush=True)


def measure(args):
    clock, device, bf16 = Clock(args.device), args.device, torch.bfloat16
    small = args.model == "tiny"
    draw = lambda *shape, dtype=bf16: torch.randn(*shape, device=device, dtype=dtype)

    def both(kind, shape, run, inputs, seconds_of=clock.seconds):
        """Times of forward, and of backward from a random gradient; and the memory that a forward keeps."""
        inputs = [it.requires_grad_() if it.is_floating_point() else it for it in inputs]
        if clock.is_gpu:
            before = torch.cuda.memory_allocated()
        out = run(*inputs)
        kept = torch.cuda.memory_allocated() - before if clock.is_gpu else 0
        gradient = torch.randn_like(out)
        report(kind, dict(shape, direction="forward"), seconds_of(lambda: run(*inputs)), kept_bytes=kept)
        back = lambda: torch.autograd.grad(out, [it for it in inputs if it.requires_grad], gradient, retain_graph=True)
        report(kind, dict(shape, direction="backward"), seconds_of(back))

    # Elementwise: rows of a micro-batch, and features of models of 1 to 405 billion parameters.
    for rows in [64] if small else [2048, 8192, 32768]:
        for width in [64] if small else [2048, 4096, 8192, 16384]:
            shape, x = dict(rows=rows, width=width), draw(rows, width)
            both("add", shape, torch.add, [x, draw(rows, width)])
            both("rms_norm", shape, lambda x, g: F.rms_norm(x, (width,), g), [x, draw(width)])
            both("layer_norm", shape, lambda x, g, b: F.layer_norm(x, (width,), g, b), [x, draw(width), draw(width)])
            both("gated_silu", shape, lambda a, b: F.silu(a) * b, [x, draw(rows, width)])
            both("gelu", shape, F.gelu, [x])
            both("dropout", shape, lambda x: F.dropout(x, 0.1), [x])
            report("cast_to_fp32", shape, clock.seconds(lambda: x.float()))
            report("copy", shape, clock.seconds(lambda: x.clone()))
            if rows * width <= 8192 * 8192:
                both("softmax", shape, lambda x: F.softmax(x, -1), [x])
            if (rows, width) == (8192, 4096):
                both("gated_silu_compiled", shape, torch.compile(lambda a, b: F.silu(a) * b), [x, draw(rows, width)])
    for rows, heads, size in [(64, 2, 32)] if small else [(4096, 32, 64), (8192, 32, 128), (8192, 64, 128)]:
        cos, sin = angles(rows, size, device)
        both("rotary", dict(rows=rows, heads=heads, head_size=size), lambda x: rotate(x, cos, sin), [draw(1, heads, rows, size)])
    for rows, words in [(64, 512)] if small else [(4096, 32000), (4096, 128256), (8192, 32000), (8192, 128256)]:
        labels = torch.randint(0, words, (rows,), device=device)
        shape = dict(rows=rows, vocab=words)
        both("cross_entropy_fp32", shape, lambda x: F.cross_entropy(x.float(), labels), [draw(rows, words)])
        hidden, head = draw(rows, 64 if small else 2048), draw(words, 64 if small else 2048)

        def chunked(hidden, head):
            parts = zip(hidden.chunk(8), labels.chunk(8))
            loss = lambda x, y: F.cross_entropy(F.linear(x, head).float(), y, reduction="sum")
            return sum(checkpoint(loss, x, y, use_reentrant=False) for x, y in parts) / rows

        both("head_and_cross_entropy", shape, lambda h, w: F.cross_entropy(F.linear(h, w).float(), labels), [hidden, head])
        both("head_and_chunked_cross_entropy", shape, chunked, [hidden, head])
        del hidden, head
    for count in [1 << 12] if small else [1 << 26, 1 << 28, 1 << 30]:
        for parts in [1, 64]:
            parameters = [nn.Parameter(torch.randn(count // parts, device=device)) for _ in range(parts)]
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            for name in ["fused", "foreach"]:
                if name == "fused" and not clock.is_gpu:
                    continue
                step = torch.optim.AdamW(parameters, **{name: True}).step
                report(f"adamw_{name}", dict(elements=count, tensors=parts), clock.seconds(step, times=5))
            norm = lambda: nn.utils.clip_grad_norm_(parameters, 1.0)
            report("clip_grad_norm", dict(elements=count, tensors=parts), clock.seconds(norm, times=5))
            del parameters, step

    from torch.nn.attention import SDPBackend, sdpa_kernel

    shapes = [(b, s, h, kv, d) for b, s in [(4, 1024), (2, 2048), (1, 4096), (4, 4096), (1, 8192), (1, 16384), (1, 32768)]
              for h, kv, d in [(32, 8, 64), (32, 8, 128), (64, 8, 128)]]
    for batch, length, heads, kv_heads, size in [(1, 64, 4, 2, 16)] if small else shapes:
        if length * heads > 32768 * 32:
            continue
        shape = dict(batch=batch, sequence=length, heads=heads, kv_heads=kv_heads, head_size=size)
        qkv = [draw(batch, count, length, size) for count in (heads, kv_heads, kv_heads)]
        for name in ["FLASH_ATTENTION", "CUDNN_ATTENTION"] if clock.is_gpu else ["MATH"]:
            with sdpa_kernel(getattr(SDPBackend, name)):
                try:
                    both(f"attention_{name.lower()}", shape, attention, qkv, lambda run: clock.seconds(run, times=5))
                except RuntimeError as error:
                    report(f"attention_{name.lower()}", shape, math.nan, error=str(error).splitlines()[0])
    widths = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (2048, 2048), (3072, 2048), (16384, 2048), (2048, 8192),
              (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672), (128256, 4096), (1280, 8192), (7168, 2048)]
    for n, k in [(64, 64)] if small else widths:
        for m in [64] if small else [1024, 4096, 8192, 16384]:
            operations, a, b = 2 * m * n * k, draw(m, k), draw(n, k)
            shape = dict(m=m, n=n, k=k)
            seconds = clock.seconds(lambda: F.linear(a, b), times=5)
            report("matmul_bf16", shape, seconds, tflops=operations / seconds / 1e12)
            if clock.is_gpu:
                fp8, one = torch.float8_e4m3fn, torch.ones((), device=device)
                a8, b8 = a.to(fp8), b.to(fp8).t()
                seconds = clock.seconds(lambda: torch._scaled_mm(a8, b8, one, one, out_dtype=bf16, use_fast_accum=True), times=5)
                report("matmul_fp8", shape, seconds, tflops=operations / seconds / 1e12)
    host_times(args, clock, draw)


def host_times(args, clock, draw):
    """Host time of an operator, from calls so small that the GPU waits for them; and times of a block's passes."""
    x, g, w = (draw(*shape).requires_grad_() for shape in [(16, 64), (64,), (64, 64)])
    calls = dict(
        add=lambda: x + x, linear=lambda: F.linear(x, w), rms_norm=lambda: F.rms_norm(x, (64,), g),
        silu=lambda: F.silu(x), view=lambda: x.view(4, 4, 64), transpose=lambda: x.t(), cast=lambda: x.float(),
        attention=lambda: attention(x.view(1, 4, 16, 16), x.view(1, 4, 16, 16), x.view(1, 4, 16, 16)),
        cross_entropy=lambda: F.cross_entropy(x.float(), torch.zeros(16, dtype=torch.long, device=x.device)))
    for name, call in calls.items():
        for kind, run in [("forward", call), ("forward_and_backward", lambda: call().sum().backward())]:
            if name in ("add",) or kind == "forward" or call().requires_grad:
                for _ in range(20):
                    run()
                clock.wait()
                start = time.perf_counter()
                for _ in range(200):
                    run()
                clock.wait()
                report("host", dict(operator=name, direction=kind), (time.perf_counter() - start) / 200)
    sizes = SIZES[args.model]
    for batch, length in [(1, 64)] if args.model == "tiny" else [(1, 512), (1, 4096)]:
        block = Block(sizes).to(args.device)
        cos, sin = angles(length, sizes["hidden"] // sizes["heads"], args.device)
        x = draw(batch, length, sizes["hidden"]).requires_grad_()

        def passes(run):
            with torch.autocast(args.device, dtype=torch.bfloat16):
                out = run(x, cos, sin)
            out.sum().backward()

        ways = dict(eager=block, compile=torch.compile(block, dynamic=False))
        if clock.is_gpu:
            ways["graph"] = torch.compile(block, dynamic=False, mode="reduce-overhead")
        for name, run in ways.items():
            for _ in range(4):
                passes(run)
            clock.wait()
            start = time.perf_counter()
            for _ in range(20):
                passes(run)
            launched = (time.perf_counter() - start) / 20
            clock.wait()
            seconds = (time.perf_counter() - start) / 20
            report("block", dict(batch=batch, sequence=length, way=name), seconds, host_us=round(launched * 1e6, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "kernels"])
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--model", choices=SIZES, default="llama-3.2-1b")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    for name, value in dict(micro_batch=1, accumulate=1, sequence=4096, steps=6, warm_ups=3).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    train(args) if args.what == "train" else measure(args)


main()
