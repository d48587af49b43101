#!/usr/bin/env python3
"""What a forward + backward pair of each op costs the host, in microseconds, on tensors so small that nothing else counts.

    bench/python/host_cost.py [--device cuda] [--iterations 2000] [--ops rms_norm swiglu …] [--profile rms_norm]

As in a model, one backward serves many calls: BATCH of them, each with leaves of its own. On a GPU they are only launched,
and waited for between the repeats; on a CPU one thread runs, and the tiny kernels are in the figures. Medians of the repeats;
PyTorch eager and Liger (where it can be imported) run the same shapes. The last line is what torch itself takes for any
function of two inputs whose gradients are written in Python.
"""

import argparse
import cProfile
import gc
import pstats
import statistics
import time

import torch
from cases import CASES, Case, available_peers, make_case, run_calls

REPEATS = 7
BATCH = 16


class Nothing(torch.autograd.Function):
    """Allocates one result, then two gradients."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, _):
        x, weight = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def nothing(device):
    x, weight = torch.randn(4, 64, device=device).requires_grad_(), torch.randn(64, device=device).requires_grad_()
    return Case([x, weight], [torch.randn_like(x)], {"nothing": lambda x, weight: [Nothing.apply(x, weight)]})


def microseconds(case, provider, iterations, synchronize):
    calls, function = case.calls(BATCH), case.functions[provider]
    figures = []
    gc.disable()
    for repeat in range(REPEATS + 1):
        synchronize()
        start = time.perf_counter()
        for _ in range(iterations):
            run_calls(calls, function)
        if repeat > 0:  # the first warms up
            figures.append((time.perf_counter() - start) / (iterations * BATCH) * 1e6)
    gc.enable()
    return statistics.median(figures)


def profile(case, iterations):
    calls, function = case.calls(BATCH), case.functions["tigon"]
    run_calls(calls, function)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(iterations):
        run_calls(calls, function)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--iterations", type=int, default=30, help=f"of {BATCH} pairs, in each of {REPEATS} repeats")
    parser.add_argument("--ops", nargs="*", default=list(CASES))
    parser.add_argument("--profile", metavar="OP", help="where one op's time goes, by function")
    args = parser.parse_args()
    torch.set_num_threads(1)
    synchronize = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    peers = available_peers(args.device)

    if args.profile:
        profile(make_case(args.profile, "tiny", args.device, args.dtype, peers), args.iterations)
        return
    providers = ["tigon", "eager", *peers]
    print(f"host µs of a forward + backward pair, {args.device}, {args.dtype}, torch {torch.__version__}\n")
    print("| op | " + " | ".join(providers) + " |\n|---" + "|---" * len(providers) + "|")
    for op in args.ops:
        case = make_case(op, "tiny", args.device, args.dtype, peers)
        cells = [
            f"{microseconds(case, provider, args.iterations, synchronize):.1f}" if provider in case.functions else "–"
            for provider in providers
        ]
        print(f"| {op} | " + " | ".join(cells) + " |", flush=True)
    floor = microseconds(nothing(args.device), "nothing", args.iterations, synchronize)
    print(f"\na function in Python that computes nothing: {floor:.1f}")


if __name__ == "__main__":
    main()
