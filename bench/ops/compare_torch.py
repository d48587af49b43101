#!/usr/bin/env python3
"""Tigon's CPU ops beside PyTorch eager and torch.compile: same shapes, same machine, same run.

    bench/ops/compare_torch.py [--tigon build/tigon] [--rounds 3] [--json rows.json] [--markdown table.md]

Every round times each provider in turn, and a cell is the best round's median, for every provider alike: on a shared machine
a round can fall into a minute in which the host gives half a core, and that says nothing about either side. PyTorch gets its fastest spelling of each op (for
rmsnorm both F.rms_norm and the Hugging Face formula are timed and the faster one counts). Peak memory is what a forward and
backward pass takes beyond its inputs and upstream gradients: from the ledger for Tigon, from the profiler's allocation
events for PyTorch. The rows have the keys of `tigon bench ops --json`.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

CASES = [
    ("rmsnorm", "16384x2048"),
    ("layernorm", "16384x2048"),
    ("rope", "8x1024x32x8x64"),
    ("swiglu", "8192x8192"),
    ("geglu", "8192x8192"),
    ("cross_entropy", "4096x32000"),
    ("cross_entropy", "1024x128256"),
    ("fused_linear_cross_entropy", "1024x768x32000"),
    ("fused_linear_cross_entropy", "512x2048x128256"),
]


def leaf(*shape, mean=0.0, deviation=1.0):
    return (torch.randn(*shape) * deviation + mean).requires_grad_()


def hugging_face_rmsnorm(x, w):
    hidden = x.float()
    hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-5)
    return w * hidden.to(x.dtype)


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def make(op, shape):
    """(functions by spelling, differentiable inputs, upstream gradients or None for a scalar loss)."""
    n = [int(part) for part in shape.split("x")]
    if op == "rmsnorm":
        x, w = leaf(*n), leaf(n[1], mean=1.0, deviation=0.3)
        spellings = {"F.rms_norm": lambda: F.rms_norm(x, (n[1],), w, 1e-5), "formula": lambda: hugging_face_rmsnorm(x, w)}
        return spellings, [x, w], [torch.randn(*n)]
    if op == "layernorm":
        x, w, b = leaf(*n), leaf(n[1], mean=1.0, deviation=0.3), leaf(n[1])
        return {"F.layer_norm": lambda: F.layer_norm(x, (n[1],), w, b, 1e-5)}, [x, w, b], [torch.randn(*n)]
    if op == "rope":
        batch, seq, heads, kv_heads, d = n
        q, k = leaf(batch, heads, seq, d), leaf(batch, kv_heads, seq, d)
        angle = torch.outer(torch.arange(seq).float(), 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d))
        cos, sin = torch.cat((angle, angle), -1).cos()[None, None], torch.cat((angle, angle), -1).sin()[None, None]
        rotate = lambda: (q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin)
        return {"apply_rotary_pos_emb": rotate}, [q, k], [torch.randn_like(q), torch.randn_like(k)]
    if op in ("swiglu", "geglu"):
        a, b = leaf(*n), leaf(*n)
        act = F.silu if op == "swiglu" else (lambda t: F.gelu(t, approximate="tanh"))
        return {"act(a)*b": lambda: act(a) * b}, [a, b], [torch.randn(*n)]
    if op == "cross_entropy":
        logits, target = leaf(*n), torch.randint(n[1], (n[0],))
        return {"F.cross_entropy": lambda: F.cross_entropy(logits, target)}, [logits], None
    if op == "fused_linear_cross_entropy":
        tokens, hidden, vocab = n
        x, w, target = leaf(tokens, hidden), leaf(vocab, hidden, deviation=0.02), torch.randint(vocab, (tokens,))
        return {"F.linear + F.cross_entropy": lambda: F.cross_entropy(F.linear(x, w), target)}, [x, w], None
    raise ValueError(op)


def one_pass(function, inputs, upstream):
    """Seconds of forward and of backward."""
    start = time.perf_counter()
    out = function()
    middle = time.perf_counter()
    grads = torch.autograd.grad(out, inputs, upstream)
    end = time.perf_counter()
    del out, grads
    return middle - start, end - middle


def peak_bytes(function, inputs, upstream):
    """The highest sum of allocations minus frees during one pass."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        one_pass(function, inputs, upstream)
    total = peak = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak


def measure_torch(function, inputs, upstream, repeats):
    one_pass(function, inputs, upstream)  # warms up; compiles
    times = [one_pass(function, inputs, upstream) for _ in range(repeats)]
    full = [1e3 * (a + b) for a, b in times]
    quantiles = statistics.quantiles(full, n=5) if len(full) > 1 else full * 4
    return {
        "fwd_ms": 1e3 * statistics.median(a for a, _ in times),
        "bwd_ms": 1e3 * statistics.median(b for _, b in times),
        "full_ms": statistics.median(full),
        "q20_ms": quantiles[0],
        "q80_ms": quantiles[-1],
    }


def measure_tigon(program, op, shape, repeats):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        command = [program, "bench", "ops", "--ops", op, "--shapes", shape, "--repeats", str(repeats), "--json", path]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(path) as file:
            return json.load(file)


def best_row(rows):
    """The row of the fastest round."""
    return min(rows, key=lambda row: row["full_ms"])


def compare(args):
    table = []
    for op, shape in CASES:
        if args.ops and op not in args.ops:
            continue
        print(f"{op} {shape} …", file=sys.stderr, flush=True)
        spellings, inputs, upstream = make(op, shape)
        providers = {f"torch-eager ({name})": f for name, f in spellings.items()}
        if not args.no_compile:
            providers |= {f"torch-compile ({name})": torch.compile(f) for name, f in spellings.items()}
        rounds = {name: [] for name in ["tigon", "tigon-unfused", *providers]}
        for _ in range(args.rounds):
            for row in measure_tigon(args.tigon, op, shape, args.repeats):
                rounds[row["provider"]].append(row)
            for name, function in providers.items():
                times = measure_torch(function, inputs, upstream, args.repeats)
                rounds[name].append({"op": op, "shape": shape, "dtype": "f32", "device": "cpu", "provider": name, **times})
        peaks = {name: peak_bytes(function, inputs, upstream) for name, function in providers.items()}
        best = {}
        for name, rows in rounds.items():
            if not rows:
                continue
            row = best_row(rows)
            # Every row of an op against one floor: the lowest measured, at the fastest copy seen beside it.
            row["floor_ms"] = min(r["floor_ms"] for r in rounds["tigon"])
            if name in peaks:
                row["peak_bytes"] = peaks[name]
            kind = name.split(" ")[0]
            if kind not in best or row["full_ms"] < best[kind]["full_ms"]:
                best[kind] = row
        table.append(best)
        del spellings, inputs, upstream, providers
    return table


def markdown(table, args):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    lines = [
        "# Tigon and PyTorch on the CPU, f32, forward + backward",
        "",
        f"Command: `{' '.join(sys.argv)}`  ",
        f"Machine: {cpu}, {torch.get_num_threads()} threads; PyTorch {torch.__version__}; commit {commit}  ",
        f"Best of {args.rounds} rounds, each the median of {args.repeats} repeats. floor = fewest bytes / copy bandwidth (or fewest FLOPs / GEMM rate) measured in the same run.",
        "",
        "| op | shape | floor ms | Tigon ms | of limit | eager ms | compile ms | unfused ms | vs eager | vs best | Tigon peak MB | eager peak MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for best in table:
        ours, eager = best["tigon"], best["torch-eager"]
        compiled = best.get("torch-compile")
        fastest = min(eager["full_ms"], compiled["full_ms"] if compiled else math.inf)
        ratios.append(eager["full_ms"] / ours["full_ms"])
        unfused = best.get("tigon-unfused")
        cells = [
            ours["op"],
            ours["shape"],
            f"{ours['floor_ms']:.1f}",
            f"{ours['full_ms']:.1f}",
            f"{100 * ours['floor_ms'] / ours['full_ms']:.0f} %",
            f"{eager['full_ms']:.1f}",
            f"{compiled['full_ms']:.1f}" if compiled else "",
            f"{unfused['full_ms']:.1f}" if unfused else "",
            f"{ratios[-1]:.2f}",
            f"{fastest / ours['full_ms']:.2f}",
            f"{ours['peak_bytes'] / 1e6:.1f}",
            f"{eager['peak_bytes'] / 1e6:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
    lines += ["", f"Geometric mean over all rows: {mean:.2f} × PyTorch eager."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tigon", default="build/tigon", help="the program (default: build/tigon)")
    parser.add_argument("--ops", nargs="*", help="only these ops")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5, help="timed passes per round")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", help="write all rows to this file")
    parser.add_argument("--markdown", help="write the table to this file")
    args = parser.parse_args()
    if not os.access(args.tigon, os.X_OK):
        sys.exit(f"compare_torch: there is no program at {args.tigon}; run ./scripts/build first")
    torch.manual_seed(0)
    table = compare(args)
    text = markdown(table, args)
    print(text)
    if args.json:
        with open(args.json, "w") as file:
            json.dump([row for best in table for row in best.values()], file, indent=1)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
