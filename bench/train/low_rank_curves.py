"""Losses with each optimizer, at the best of a few learning rates, as a table and a picture.

build/python/bin/python bench/train/low_rank_curves.py build/release/bin/tigon --picture bench/results/cpu-low-rank.svg
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
RUNS = {
    "adamw": ([], [1e-3, 3e-3, 1e-2]),
    "apollo": (["--rank", "32"], [3e-3, 1e-2, 3e-2]),
    "apollo-mini": ([], [3e-3, 1e-2, 3e-2]),
    "galore": (["--rank", "32", "--gap", "50"], [3e-3, 1e-2, 3e-2]),
}


def run(program, name, flags, lr, steps):
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [
            program, "train", "--model", "llama-bytes-1m", "--data", ROOT / "data" / "austen.txt", "--batch", 4, "--seq", 64,
            "--steps", steps, "--warmup", steps // 10, "--eval-fraction", 0.02, "--seed", 1, "--no-gemm-ceiling",
            "--optimizer", name, "--lr", lr, "--log", log, *flags,
        ]  # fmt: skip
        printed = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    states = next(line.split()[-1] for line in printed.splitlines() if line.startswith("states "))
    losses = [line["loss"] for line in lines if "grad_norm" in line]
    held_out = next(line["eval_loss"] for line in reversed(lines) if "eval_loss" in line)
    return losses, held_out, int(states)


def smooth(values, over=20):
    return [sum(values[max(0, i - over + 1) : i + 1]) / min(over, i + 1) for i in range(len(values))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    print("| `--optimizer` | `--lr` | loss, last 20 steps | held out | states, bytes |")
    print("|---|---|---|---|---|")
    for name, (flags, rates) in RUNS.items():
        outcomes = []
        for lr in rates:
            losses, held_out, states = run(options.program, name, flags, lr, options.steps)
            outcomes.append((held_out, lr, losses))
            print(
                f"| {' '.join([name, *flags])} | {lr:g} | {smooth(losses)[-1]:.3f} | {held_out:.3f} | {states} |",
                flush=True,
            )
        _, lr, losses = min(outcomes)
        plt.plot(smooth(losses), label=f"{name}, lr {lr:g}", linewidth=1)
    if options.picture:
        plt.xlabel("step")
        plt.ylabel("loss, mean of 20 steps")
        plt.ylim(top=4)
        plt.legend()
        plt.tight_layout()
        plt.savefig(options.picture, metadata={"Date": None})


main()
