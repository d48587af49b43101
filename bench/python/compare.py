#!/usr/bin/env python3
"""tigon.ops beside PyTorch eager, torch.compile and Liger: forward + backward through PyTorch, as a user runs them.

    bench/python/compare.py [--device cuda] [--shapes small] [--ops rms_norm …] [--dtype bfloat16] [--markdown table.md]

Prints a Markdown table row by row; --markdown also writes each row to a file as it comes. Times are medians, by CUDA events
or by the clock; memory is the peak of forward and backward beyond the inputs (on a GPU). A peer that is missing or fails is
left out.
"""

import argparse
import statistics
import sys
import time

import torch
from cases import CASES, SHAPES, available_peers, make_case

ROW_MILLISECONDS = 20
FEWEST_PAIRS, MOST_PAIRS = 5, 100


def run(case, function):
    results = function()
    torch.autograd.backward(results, case.upstream)
    for leaf in case.inputs:
        leaf.grad = None


def row_milliseconds(case, function, pairs):
    """Of one pair, in a row of them that nothing waits between, as in training: the longer of the host's and the GPU's
    time. The tensors of one pair are larger than L2."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(pairs):
        run(case, function)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / pairs


def cuda_milliseconds(case, function, repeats):
    # Rows long enough that the host's first, slower pairs do not show; the first row only tells how long that is.
    pairs = int(ROW_MILLISECONDS / row_milliseconds(case, function, FEWEST_PAIRS))
    pairs = min(max(pairs, FEWEST_PAIRS), MOST_PAIRS)
    return statistics.median(row_milliseconds(case, function, pairs) for _ in range(repeats))


def cpu_milliseconds(case, function, repeats):
    figures = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(case, function)
        figures.append((time.perf_counter() - start) * 1e3)
    return statistics.median(figures)


def peak_mebibytes(case, function):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(case, function)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure(case, function, device, repeats):
    """A cell of the table."""
    for _ in range(2):
        run(case, function)
    if device == "cuda":
        milliseconds = cuda_milliseconds(case, function, repeats)
        return f"{milliseconds:.3f} ms, {peak_mebibytes(case, function):.0f} MiB"
    return f"{cpu_milliseconds(case, function, repeats):.2f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--shapes", default=None, help="tiny, small or large; unset: large on a GPU, small elsewhere")
    parser.add_argument("--ops", nargs="*", default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--providers", nargs="*", default=["tigon", "eager", "compile", "liger"])
    parser.add_argument("--markdown", metavar="FILE")
    args = parser.parse_args()
    dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    shapes = args.shapes or ("large" if args.device == "cuda" else "small")
    peers = available_peers(args.device)
    providers = [p for p in args.providers if p != "liger" or peers]
    lines = open(args.markdown, "w") if args.markdown else None  # noqa: SIM115 - written row by row

    def write(line):
        print(line, flush=True)
        if lines:
            print(line, file=lines, flush=True)

    where = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    write(f"forward + backward, {dtype}, {where}, torch {torch.__version__}, median of {args.repeats}\n")
    write("| op | shape | " + " | ".join(providers) + " |\n|---|---" + "|---" * len(providers) + "|")
    for op in args.ops:
        for shape in SHAPES[op][shapes]:
            cells = []
            for provider in providers:
                torch._dynamo.reset()
                try:
                    case = make_case(op, shape, args.device, dtype, peers)
                    if "eager" in case.functions:
                        case.functions["compile"] = torch.compile(case.functions["eager"])
                    cells.append(measure(case, case.functions[provider], args.device, args.repeats))
                except Exception as error:  # out of memory, a peer's own limits: the row goes on without it
                    print(f"{provider} failed at {op} {shape}: {error}", file=sys.stderr)
                    cells.append("–")
                case = None
                if args.device == "cuda":
                    torch.cuda.empty_cache()
            write(f"| {op} | {shape} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
