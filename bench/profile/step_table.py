#!/usr/bin/env python3
"""Where a training step's time goes on a GPU, beside the least it could take.

    g++ -O2 -shared -fPIC bench/profile/kernel_times.cpp -o kernel_times.so \
        -I $CUDA/include -L $CUDA/lib64 -lcupti
    CUDA_INJECTION64_PATH=./kernel_times.so KERNEL_TIMES=times.tsv \
        tigon train --model llama-3.2-1b --device cuda --precision bf16-sr --batch 8 --seq 1024 --steps 12
    bench/profile/step_table.py times.tsv --batch 8 --seq 1024 --copy 4258 --gemm 803

--copy and --gemm are the ceilings that `tigon bench ops --device cuda` prints (GB/s, and GFLOP/s / 1000). The model is
Llama-3.2-1B with bf16 weights, gradients and states; --recompute says what backward makes again. Steps are found by
their AdamW kernels; the last two whole ones are averaged."""

import argparse
import collections
import sys
from dataclasses import dataclass

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, DIM, VOCAB = 16, 2048, 8192, 32, 8, 64, 128256
PARAMETERS = 1_235_814_400

# What a kernel belongs to, by the first fragment found in its name.
GROUPS = [
    ("attention backward", ("attention_backward", "attention_statistics", "bprop")),
    ("attention forward", ("attention_forward", "sdpa")),
    ("matrix products", ("nvjet", "gemm", "cutlass", "splitK", "add_to_dweight")),
    ("loss rows", ("LossRows", "loss_", "gather_kernel", "scatter_kernel", "clear_kernel", "decide_kernel")),
    ("AdamW", ("adamw",)),
    ("gradient norm", ("norm_pieces", "norm_sum")),
    ("embedding", ("embedding", "scan_kernel", "fill_kernel", "order_kernel", "count_kernel")),
    ("RMSNorm", ("norm_forward", "norm_backward", "add_shares")),
    ("rope", ("rope",)),
    ("SwiGLU", ("gated_",)),
    ("fills and copies", ("memset", "memcpy")),
]


@dataclass
class Kernel:
    begin: int
    end: int
    name: str


def read(path: str) -> list[Kernel]:
    kernels = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            begin, end, _, name = line.rstrip("\n").split("\t")
            kernels.append(Kernel(int(begin), int(end), name))
    return sorted(kernels, key=lambda k: k.begin)


def last_steps(kernels: list[Kernel], count: int) -> tuple[list[Kernel], float]:
    """The kernels of the last `count` whole steps, and their milliseconds from first to first."""
    updates = [i for i, k in enumerate(kernels) if "adamw" in k.name]
    begins = [i for i in updates if "adamw" not in kernels[i - 1].name and "memset" not in kernels[i - 1].name]
    if len(begins) <= count:
        sys.exit(f"{len(begins)} steps were found: at least {count + 1} are needed")
    first, last = begins[-1 - count], begins[-1]
    return kernels[first:last], (kernels[last].begin - kernels[first].begin) / 1e6


def group_of(name: str) -> str:
    for group, fragments in GROUPS:
        if any(fragment in name for fragment in fragments):
            return group
    return "other"


def floors(batch: int, seq: int, recompute: str, copy: float, gemm: float) -> dict[str, float]:
    """The least milliseconds of each group: fewest bytes over the copy's rate, fewest FLOP over the product's."""
    tokens = batch * seq
    layer = HIDDEN * (HEADS + 2 * KV_HEADS) * DIM + HEADS * DIM * HIDDEN + 3 * HIDDEN * INNER
    block, again = recompute == "block", recompute != "none"
    products = 2 * tokens * ((3 + block) * LAYERS * layer + 3 * HIDDEN * VOCAB)
    scores = 4 * batch * HEADS * seq * seq / 2 * DIM * LAYERS  # two products, causal
    row, inner = 2 * tokens * HIDDEN, 2 * tokens * INNER  # bytes
    flop = 1e9 * gemm  # per millisecond
    byte = 1e6 * copy
    return {
        "matrix products": products / flop,
        "attention forward": scores * (1 + block) / flop,
        "attention backward": 2.5 * scores / flop,
        "loss rows": 2 * 2 * tokens * VOCAB / byte,
        "AdamW": 14 * PARAMETERS / byte,
        "gradient norm": 2 * PARAMETERS / byte,
        "embedding": 5 * row / byte,  # the head has written all of the gradient; these rows are added to
        "RMSNorm": ((2 * LAYERS + 1) * (4 + 4) + again * LAYERS * (2 + 4)) * row / byte,
        "rope": LAYERS * (2 + block) * 2 * row * (HEADS + KV_HEADS) / HEADS / byte,
        "SwiGLU": LAYERS * (3 + 5 + again) * inner / byte,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", help="the file of kernel times")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--recompute", choices=("none", "selective", "block"), default="none")
    parser.add_argument("--copy", type=float, required=True, help="GB/s, read and write counted")
    parser.add_argument("--gemm", type=float, required=True, help="TFLOP/s")
    args = parser.parse_args()

    steps = 2
    kernels, milliseconds = last_steps(read(args.times), steps)
    spent: collections.Counter[str] = collections.Counter()
    launches: collections.Counter[str] = collections.Counter()
    idle, busy_until = 0, kernels[0].begin
    for kernel in kernels:
        group = group_of(kernel.name)
        spent[group] += kernel.end - kernel.begin
        launches[group] += 1
        idle += max(0, kernel.begin - busy_until)
        busy_until = max(busy_until, kernel.end)
    least = floors(args.batch, args.seq, args.recompute, args.copy, args.gemm)

    print("| part | kernels | ms | floor ms | of the floor's rate |")
    print("|---|---|---|---|---|")
    for group, nanoseconds in spent.most_common():
        ms = nanoseconds / 1e6 / steps
        floor = least.get(group)
        beside = f"{floor:.2f} | {100 * floor / ms:.0f} %" if floor else "| "
        print(f"| {group} | {launches[group] / steps:.0f} | {ms:.2f} | {beside} |")
    print(f"| gaps | | {idle / 1e6 / steps:.2f} | | |")
    total = milliseconds / steps
    floor = sum(least.values())
    print(f"| **step** | {len(kernels) / steps:.0f} | **{total:.2f}** | {floor:.2f} | {100 * floor / total:.0f} % |")
    print(f"\n{args.batch * args.seq / total * 1e3:.0f} tokens/s while being watched")


if __name__ == "__main__":
    main()
