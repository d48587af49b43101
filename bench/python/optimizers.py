#!/usr/bin/env python3
"""A step of AdamW over all tensors of a model, Tigon's beside torch's fused=True, in turns.

    bench/python/optimizers.py [--device cuda] [--layers 4 --hidden 1024 --vocab 16000] [--dtype bfloat16] [--repeats 20]

Besides the step the host's microseconds for the same number of tiny tensors, where nothing else counts: on a GPU they are
only launched, on a CPU the kernels are in the figure, by one thread. torchao is in it where it can be imported, and
bitsandbytes on a GPU, where alone it has such an optimizer.
"""

import argparse
import statistics
import time

import tigon
import torch


def shapes(layers, hidden, vocab):
    block = [(3 * hidden, hidden), (hidden, hidden), (8 * hidden, hidden), (hidden, 4 * hidden), (hidden,), (hidden,)]
    return [(vocab, hidden), *block * layers, (hidden,)]


def make_optimizers(device):
    options = {"lr": 1e-4, "weight_decay": 0.1}
    made = {"torch fused": lambda p: torch.optim.AdamW(p, fused=True, **options)}
    for state in ("f32", "bf16", "int8"):
        made[f"tigon {state}"] = lambda p, state=state: tigon.optim.AdamW(p, state=state, **options)
    made["tigon int8, by chance"] = lambda p: tigon.optim.AdamW(p, state="int8", stochastic_rounding=True, **options)
    try:
        from torchao.optim import AdamW8bit

        made["torchao 8 bit"] = lambda p: AdamW8bit(p, **options)
    except ImportError:
        pass
    if device == "cuda":
        try:
            import bitsandbytes

            made["bitsandbytes 8 bit"] = lambda p: bitsandbytes.optim.AdamW8bit(p, **options)
        except ImportError:
            pass
    return made


def timed(device, sizes, dtype, repeats):
    """Median milliseconds of each optimizer, all of them in turns."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    optimizers = {}
    for name, make in make_optimizers(device).items():
        parameters = [torch.nn.Parameter(torch.randn(*size, device=device).to(dtype)) for size in sizes]
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizers[name] = make(parameters)
    times = {name: [] for name in optimizers}
    for repeat in range(repeats + 2):
        for name, optimizer in optimizers.items():
            synchronize()
            start = time.perf_counter()
            optimizer.step()
            synchronize()
            if repeat > 1:  # the first ones warm up
                times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=16000)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    sizes = shapes(args.layers, args.hidden, args.vocab)
    elements = sum(torch.Size(size).numel() for size in sizes)
    threads = torch.get_num_threads()
    print(f"{len(sizes)} tensors, {elements / 1e6:.1f} M elements of {args.dtype}, {args.device}, {threads} threads")
    steps = timed(args.device, sizes, dtype, args.repeats)
    torch.set_num_threads(1)
    host = timed(args.device, [(8,)] * len(sizes), dtype, 50 * args.repeats)
    fused = steps["torch fused"]
    print(f"{'':24} {'step ms':>9} {'G elements/s':>13} {'vs fused':>9} {'host us':>9}")
    for name, ms in steps.items():
        print(f"{name:24} {ms:9.2f} {elements / ms / 1e6:13.2f} {fused / ms:8.2f}x {host[name] * 1e3:9.1f}")


if __name__ == "__main__":
    main()
