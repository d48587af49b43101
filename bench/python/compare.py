#!/usr/bin/env python3
"""tigon.ops beside PyTorch eager, torch.compile and Liger: forward + backward through PyTorch, as a user runs them.

    bench/python/compare.py [--device cuda] [--shapes small] [--ops rms_norm …] [--dtype bfloat16] [--markdown table.md]

Prints a Markdown table row by row; --markdown also writes each row to a file as it comes. Times are medians, by CUDA events
or by the clock, of rounds in which the providers take turns, each after a row that is not counted, so that a GPU's clocks
are those of its own load. Memory is the peak of forward and backward beyond the inputs (on a GPU). A peer that is missing or
fails is left out.

As in a model, a backward serves several calls: --calls of them, each with tensors of its own. Between a call and its own
backward torch changes threads twice, which on a GPU hides behind nothing where the op is short (--calls 1 shows it).
"""

import argparse
import statistics
import sys
import time

import torch
from cases import CASES, SHAPES, available_peers, make_case, run_calls
from gpu_row import row_milliseconds

ROW_MILLISECONDS = 20
FEWEST_PAIRS, MOST_PAIRS = 5, 100
MOST_CALLS, CALLS_BYTES = 8, 2**30


def pair_milliseconds(calls, function, backwards):
    """Of one pair of forward and backward. The tensors of one pair are larger than L2."""
    return row_milliseconds(lambda: run_calls(calls, function), backwards) / len(calls)


def clock_milliseconds(calls, function):
    start = time.perf_counter()
    run_calls(calls, function)
    return (time.perf_counter() - start) * 1e3 / len(calls)


def peak_mebibytes(call, function):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run_calls([call], function)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


class Provider:
    """One provider's function at one shape, warmed up, with tensors of its own: some write over theirs."""

    def __init__(self, name, make, device, count):
        case = make()
        self.function = torch.compile(case.functions["eager"]) if name == "compile" else case.functions[name]
        self.device, self.times = device, []
        held = sum(t.nbytes for t in (*case.inputs, *case.upstream))
        self.calls = case.calls(count or (min(MOST_CALLS, max(1, CALLS_BYTES // held)) if device == "cuda" else 1))
        for _ in range(2):
            run_calls(self.calls, self.function)
        if device == "cuda":
            # Rows long enough that the host's first, slower pairs do not show.
            pairs = ROW_MILLISECONDS / pair_milliseconds(self.calls, self.function, FEWEST_PAIRS)
            self.backwards = round(min(max(pairs, FEWEST_PAIRS), MOST_PAIRS) / len(self.calls)) or 1

    def measure(self):
        if self.device == "cuda":
            pair_milliseconds(self.calls, self.function, self.backwards)
            self.times.append(pair_milliseconds(self.calls, self.function, self.backwards))
        else:
            self.times.append(clock_milliseconds(self.calls, self.function))

    def cell(self):
        if self.device != "cuda":
            return f"{statistics.median(self.times):.2f} ms"
        return f"{statistics.median(self.times):.3f} ms, {peak_mebibytes(self.calls[0], self.function):.0f} MiB"


def compare(names, make, device, count, repeats):
    """The cells of a row of the table."""
    torch._dynamo.reset()
    providers = {}

    def attempt(name, step):
        try:
            return step()
        except Exception as error:  # out of memory, a peer's own limits: the row goes on without it
            print(f"{name} failed: {error}", file=sys.stderr)
            providers.pop(name, None)
            return None

    for name in names:
        provider = attempt(name, lambda name=name: Provider(name, make, device, count))
        if provider:
            providers[name] = provider
    for _ in range(repeats):
        for name, provider in list(providers.items()):
            attempt(name, provider.measure)
    cells = {name: attempt(name, provider.cell) for name, provider in list(providers.items())}
    return [cells.get(name) or "–" for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])
    parser.add_argument(
        "--shapes",
        default=None,
        help="tiny, small, large or odd (unset: large on a GPU, small elsewhere), or one, as 4096x2048",
    )
    parser.add_argument("--ops", nargs="*", default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5, help="rounds of all providers")
    parser.add_argument(
        "--calls",
        type=int,
        help=f"before each backward; unset: on a GPU what takes a GiB, at most {MOST_CALLS}; elsewhere 1",
    )
    parser.add_argument("--providers", nargs="*", default=["tigon", "eager", "compile", "liger"])
    parser.add_argument("--markdown", metavar="FILE")
    args = parser.parse_args()
    dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    shapes = args.shapes or ("large" if args.device == "cuda" else "small")
    peers = available_peers(args.device)
    names = [p for p in args.providers if p != "liger" or peers]
    lines = open(args.markdown, "w") if args.markdown else None  # noqa: SIM115 - written row by row

    def write(line):
        print(line, flush=True)
        if lines:
            print(line, file=lines, flush=True)

    where = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    write(f"forward + backward, {dtype}, {where}, torch {torch.__version__}, median of {args.repeats} rounds\n")
    write("| op | shape | " + " | ".join(names) + " |\n|---|---" + "|---" * len(names) + "|")
    for op in args.ops:
        # An op without shapes of that name (odd) is left out.
        named = shapes in ("tiny", "small", "large", "odd")
        for shape in SHAPES[op].get(shapes, []) if named else [shapes]:

            def make(op=op, shape=shape):
                return make_case(op, shape, args.device, dtype, peers)

            cells = compare(names, make, args.device, args.calls, args.repeats)
            write(f"| {op} | {shape} | " + " | ".join(cells) + " |")
            if args.device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
