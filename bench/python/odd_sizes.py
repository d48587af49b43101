#!/usr/bin/env python3
"""What an odd size costs: each op at an aligned size and at an odd one beside it, forward + backward, Tigon and PyTorch.

    bench/python/odd_sizes.py [--device cuda] [--threads 2] [--repeats 15] [--ops cross_entropy …]

Prints a Markdown table. Times are medians of rounds in which both sizes and both providers take turns, so that ratios hold
where the machine is not quiet.
"""

import argparse
import statistics
import time

import tigon
import torch
import torch.nn.functional as F


def cross_entropy(rows, classes):
    shapes = [(rows, classes)]
    target = torch.randint(classes, (rows,))
    return shapes, lambda x: tigon.ops.cross_entropy(x, target), lambda x: F.cross_entropy(x, target)


def rms_norm(rows, hidden):
    shapes = [(rows, hidden), (hidden,)]
    return shapes, lambda x, w: tigon.ops.rms_norm(x, w, 1e-6), lambda x, w: F.rms_norm(x, (hidden,), w, 1e-6)


def layer_norm(rows, hidden):
    shapes = [(rows, hidden), (hidden,), (hidden,)]
    return shapes, tigon.ops.layer_norm, lambda x, w, b: F.layer_norm(x, (hidden,), w, b)


def swiglu(rows, features):
    return [(rows, features)] * 2, tigon.ops.swiglu, lambda a, b: F.silu(a) * b


def linear_cross_entropy(rows, hidden, classes):
    shapes = [(rows, hidden), (classes, hidden)]
    target = torch.randint(classes, (rows,))
    return (
        shapes,
        lambda x, w: tigon.ops.linear_cross_entropy(x, w, target),
        lambda x, w: F.cross_entropy(F.linear(x, w), target),
    )


def linear(rows, hidden, features):
    return [(rows, hidden), (features, hidden)], tigon.ops.linear, F.linear


# The aligned size, and those to compare with it.
CASES = [
    (cross_entropy, (256, 50256), [(256, 50257)]),
    (rms_norm, (1024, 4096), [(1024, 4095)]),
    (layer_norm, (1024, 4096), [(1024, 4095)]),
    (swiglu, (512, 4096), [(512, 4095)]),
    (linear_cross_entropy, (128, 256, 32000), [(128, 256, 32001)]),
    (linear_cross_entropy, (128, 256, 50304), [(128, 256, 50257)]),
    (linear_cross_entropy, (128, 1000, 8000), [(128, 1001, 8000), (128, 1001, 8001)]),
    (linear, (256, 1024, 1024), [(256, 1024, 1025), (256, 1025, 1024), (257, 1024, 1024)]),
]


class Timed:
    """One provider at one size, warmed up."""

    def __init__(self, shapes, function, device, dtype):
        self.function, self.times = function, []
        self.leaves = [(torch.randn(*s, device=device) / 4).to(dtype).requires_grad_() for s in shapes]
        self.upstream = torch.ones_like(function(*self.leaves))
        self.run()
        self.run()

    def run(self):
        torch.autograd.grad(self.function(*self.leaves), self.leaves, self.upstream)
        if self.upstream.is_cuda:
            torch.cuda.synchronize()

    def measure(self):
        start = time.perf_counter()
        self.run()
        self.times.append((time.perf_counter() - start) * 1e3)

    def median(self):
        return statistics.median(self.times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--ops", nargs="*", default=sorted({make.__name__ for make, *_ in CASES}))
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_default_device(options.device)
    print(
        "| op | type | aligned | odd | tigon, ms | odd | ratio | torch, ms | odd | ratio |\n|" + "---|" * 10, flush=True
    )
    for make, aligned, odd_sizes in CASES:
        if make.__name__ not in options.ops:
            continue
        for dtype in options.dtypes:
            providers = {}
            for size in (aligned, *odd_sizes):
                shapes, ours, torchs = make(*size)
                for name, function in (("tigon", ours), ("torch", torchs)):
                    providers[name, size] = Timed(shapes, function, options.device, getattr(torch, dtype))
            for _ in range(options.repeats):
                for provider in providers.values():
                    provider.measure()
            for size in odd_sizes:
                cells = [make.__name__, dtype, "×".join(map(str, aligned)), "×".join(map(str, size))]
                for name in ("tigon", "torch"):
                    before, after = providers[name, aligned].median(), providers[name, size].median()
                    cells += [f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
