#!/usr/bin/env python3
"""linear_cross_entropy and its gradients through autograd beside the same kernels called without it, in turns on one GPU.

    bench/python/beside_native.py [--shapes 4096x2048x128256 …] [--rounds 7] [--markdown table.md]

A GPU under load runs at other clocks than one that has just woken up, so a program of its own for each would compare clocks.
Here rows of either kind follow each other; the figures are medians of the rows, the share is the median of the rounds' own.
"""

import argparse
import statistics
import sys

import tigon
import torch
from cases import SHAPES, make_case, run_calls
from compare import FEWEST_PAIRS
from gpu_row import row_milliseconds
from tigon.ops._chunk import Chunk
from tigon.ops._loss import loss_options

OPTIONS = loss_options(-100, 0.0, 0.0, None, "mean")


def kernels_alone(x, weight, target):
    forward = sys.modules["tigon.ops.linear_cross_entropy"]._forward
    tensors = (x.detach(), weight.detach(), None, target, None, None)
    rule = Chunk()
    settings = (*OPTIONS, rule.tokens, rule.budget_bytes, rule.lean, False)
    return lambda: forward(*tensors, *settings, *(False,) * 3, True, True, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=SHAPES["linear_cross_entropy"]["large"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", metavar="FILE")
    args = parser.parse_args()
    lines = []

    def write(line):
        print(line, flush=True)
        lines.append(line)

    write(f"bfloat16, {torch.cuda.get_device_name()}, torch {torch.__version__}, tigon {tigon.__version__}\n")
    write("| shape | through autograd, ms | kernels alone, ms | share |\n|---|---|---|---|")
    for shape in args.shapes:
        case = make_case("linear_cross_entropy", shape, "cuda", "bfloat16", {})
        x, weight = case.inputs
        target = torch.randint(weight.shape[0], x.shape[:1], device="cuda")
        calls, function = case.calls(1), case.functions["tigon"]
        kinds = (lambda calls=calls, function=function: run_calls(calls, function)), kernels_alone(x, weight, target)
        for step in kinds:
            row_milliseconds(step, 2)
        rows = [[row_milliseconds(step, FEWEST_PAIRS) for step in kinds] for _ in range(args.rounds)]
        ours, native = (statistics.median(column) for column in zip(*rows, strict=True))
        share = statistics.median(a / b for a, b in rows)
        write(f"| {shape} | {ours:.2f} | {native:.2f} | {share:.3f} |")
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
