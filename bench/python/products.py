#!/usr/bin/env python3
"""The matrix products of linear layers by torch and by the library, in turns on one GPU.

    bench/python/products.py [--tokens 65536 8192] [--layers 8192x2048 2048x8192 …]

A layer is out x in. Figures are medians of rounds, each after a row that is not counted: under load a GPU's clocks are
others.
"""

import argparse
import statistics

import torch
from gpu_row import row_milliseconds
from tigon import _native

ROW_MILLISECONDS = 15
ROUNDS = 4
LLAMA_1B = ["8192x2048", "2048x8192", "2048x2048", "512x2048"]


def milliseconds(products):
    for product in products:
        product()
    runs = max(3, int(ROW_MILLISECONDS / row_milliseconds(products[0], 3)))
    rounds = []
    for _ in range(ROUNDS):
        rounds.append([])
        for product in products:
            row_milliseconds(product, runs)
            rounds[-1].append(row_milliseconds(product, runs))
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def products_of(tokens, out, features):
    """Of each product of a layer, torch's and the library's."""
    x, w, dy = random(tokens, features), random(out, features) * features**-0.5, random(tokens, out)
    y, dx, dw = (torch.empty_like(t) for t in (dy, x, w))
    return {
        "y": (lambda: torch.mm(x, w.t(), out=y), lambda: _native.linear_forward(x, w, y)),
        "dx": (lambda: torch.mm(dy, w, out=dx), lambda: _native.linear_backward(dy, None, w, dx, None)),
        "dW": (lambda: torch.mm(dy.t(), x, out=dw), lambda: _native.linear_backward(dy, x, None, None, dw)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="*", default=[65536, 8192])
    parser.add_argument("--layers", nargs="*", default=LLAMA_1B)
    args = parser.parse_args()
    print(f"bfloat16, {torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| tokens | layer | product | torch, ms | tigon, ms | tigon, TFLOP/s |\n|---|---|---|---|---|---|")
    for tokens in args.tokens:
        for layer in args.layers:
            out, features = map(int, layer.split("x"))
            for name, pair in products_of(tokens, out, features).items():
                theirs, ours = milliseconds(pair)
                rate = 2e-9 * tokens * out * features / ours
                print(f"| {tokens} | {layer} | {name} | {theirs:.3f} | {ours:.3f} | {rate:.0f} |", flush=True)


if __name__ == "__main__":
    main()
