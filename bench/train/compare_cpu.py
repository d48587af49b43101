#!/usr/bin/env python3
"""Tigon against Transformers on PyTorch, training a 25M-parameter Llama on the CPU in f32: tokens/s and peak memory.

    python bench/train/compare_cpu.py [--tigon build/tigon] [--rounds 3] [--steps 6] [--batch 8] [--seq 256] [--threads 2]
    python bench/train/compare_cpu.py --cpu-time      # on a machine that is busy with other things

Both take the same model, from a folder that Tigon writes, and the same shape of batch; each runs in a process of its own,
in turn, so that a busy moment of the machine hits both. The rate is over all steps but the first; memory is the largest
resident set that the kernel saw. With --cpu-time a rate is per second of CPU time instead, on one thread: what a process with
so many steps takes more than one with a single step, the least of all rounds. Needs torch and transformers.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TORCH = """
import sys, time, json, torch
from transformers import AutoModelForCausalLM
folder, batch, seq, steps, threads, compiled = sys.argv[1], *map(int, sys.argv[2:7])
torch.set_num_threads(threads)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
model.train()
vocab = model.config.vocab_size
if compiled:
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
times, losses = [], []
for step in range(steps):
    ids = torch.randint(0, vocab, (batch, seq))
    start = time.perf_counter()
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"seconds": times, "loss": losses[0]}))
"""


def run(command, env=None):
    """Output, peak resident bytes and CPU seconds of a command."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    out = process.stdout.read()
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{out}{error}")
    return out, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def tigon_run(args, folder, work, steps, *flags):
    log = work / "log"
    _, peak, cpu = run(
        [args.tigon, "train", "--model", folder, "--batch", args.batch, "--seq", args.seq, "--steps", steps,
         "--threads", args.threads, "--log", log, *flags]
    )  # fmt: skip
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["seconds"] for line in lines if "seconds" in line], peak, cpu


def torch_run(args, folder, steps, compiled):
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    out, peak, cpu = run([sys.executable, "-c", TORCH, folder, args.batch, args.seq, steps, args.threads, int(compiled)], env)
    return json.loads(out.splitlines()[-1])["seconds"], peak, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tigon", default=str(ROOT / "build" / "tigon"))
    parser.add_argument("--model", default="llama-25m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="also torch.compile (its first step is left out as well)")
    parser.add_argument("--cpu-time", action="store_true", help="rates by CPU time, on one thread")
    parser.add_argument("--short", action="store_true", help="only tigon and transformers, without their variants")
    args = parser.parse_args()
    if args.cpu_time:
        args.threads = 1

    contenders = {
        "tigon": lambda *where: tigon_run(args, *where),
        "tigon, recompute selective": lambda *where: tigon_run(args, *where, "--recompute", "selective"),
        "tigon, recompute block": lambda *where: tigon_run(args, *where, "--recompute", "block"),
        "tigon, unfused": lambda *where: tigon_run(args, *where, "--fused", "none"),
        "transformers": lambda folder, work, steps: torch_run(args, folder, steps, False),
    }
    if args.compile:
        contenders["transformers, torch.compile"] = lambda folder, work, steps: torch_run(args, folder, steps, True)
    if args.short:
        contenders = {name: contenders[name] for name in ("tigon", "transformers")}
    seconds = {name: [] for name in contenders}
    peaks = {name: 0 for name in contenders}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        folder = work / "model"
        run([args.tigon, "train", "--model", args.model, "--steps", 0, "--batch", 1, "--seq", 8, "--output", folder])
        for _ in range(args.rounds):
            for contender, measure in contenders.items():
                times, peak, cpu = measure(folder, work, args.steps)
                if args.cpu_time:
                    times = [0, (cpu - measure(folder, work, 1)[2]) / (args.steps - 1)]
                seconds[contender] += times[1:]
                peaks[contender] = max(peaks[contender], peak)

    import torch
    import transformers

    print(f"{args.model}, f32, {args.batch}x{args.seq} tokens, {args.threads} threads; {platform.processor() or platform.machine()},")
    how = "least CPU time" if args.cpu_time else "median"
    print(f"PyTorch {torch.__version__}, Transformers {transformers.__version__}; {how} of {args.rounds} x {args.steps - 1} steps\n")
    tokens = args.batch * args.seq
    typical = min if args.cpu_time else statistics.median
    reference = typical(seconds["transformers"])
    print("| | tokens/s | against transformers | peak resident memory | of transformers' |")
    print("|---|---|---|---|---|")
    for contender in contenders:
        one = typical(seconds[contender])
        print(
            f"| {contender} | {tokens / one:.0f} | {reference / one:.2f} x | {peaks[contender] / 2**20:.0f} MiB "
            f"| {peaks[contender] / peaks['transformers']:.2f} |"
        )


if __name__ == "__main__":
    main()
