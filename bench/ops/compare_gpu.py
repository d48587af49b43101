#!/usr/bin/env python3
"""Tigon's GPU ops beside PyTorch eager, torch.compile, Liger and Cut Cross Entropy: same shapes, same GPU, same run.

    bench/ops/compare_gpu.py [--tigon build/tigon] [--ops rmsnorm …] [--json rows.json] [--markdown table.md]

Liger (liger_kernel) and Cut Cross Entropy (cut_cross_entropy) are timed where they can be imported. Peers are timed through
PyTorch with CUDA events around forward + backward, which is how their users run them; their host overhead is in the small
shapes. Tigon's figures are its kernels, by `tigon bench ops --device cuda`. Peak memory is what forward and backward take
beyond inputs and upstream gradients. The rows have the keys of `tigon bench ops --json`.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

CASES = (
    [("rmsnorm", f"8192x{h}") for h in (4096, 8192, 12288, 16384)]
    + [("layernorm", f"8192x{h}") for h in (4096, 8192, 12288, 16384)]
    + [("rope", f"4x2048x{4 * h}x{h}x128") for h in (8, 16, 24, 32)]  # q 4096 … 16384 wide, k a quarter of it
    + [("swiglu", f"{n}x11008") for n in (4096, 8192, 12288, 16384)]
    + [("geglu", f"{n}x11008") for n in (4096, 8192, 12288, 16384)]
    + [("cross_entropy", f"8192x{v}") for v in (40960, 81920, 122880, 163840)]
    + [
        ("fused_linear_cross_entropy", f"{m}x{h}x128256")
        for m, h in ((4096, 2048), (8192, 2048), (32768, 2048), (4096, 4096), (8192, 4096))
    ]
    + [("attention", s) for s in ("8x1024x32x8x64", "32x1024x32x8x64", "4x8192x32x8x64", "2x8192x32x8x128")]
)
# What only Tigon has: a gradient over the logits, of the weight in f32, its lean walk, half of the tokens ignored, a backward that may race.
MORE = {
    "cross_entropy": [f"8192x{v}:in_place" for v in (40960, 81920, 122880, 163840)],
    "fused_linear_cross_entropy": ["32768x2048x128256:f32dw", "8192x2048x128256:lean", "8192x4096x128256:lean", "8192x2048x128256:ignored=0.5"],
    "attention": ["8x1024x32x8x64:racing", "32x1024x32x8x64:racing", "4x8192x32x8x64:racing", "2x8192x32x8x128:racing"],
}
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def optional(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # a peer that does not load is left out, whatever its reason
        print(f"without {name}: {error}", file=sys.stderr)
        return None


class Case:
    """One op: its spellings by provider, its differentiable inputs, and the upstream gradients (None for a scalar)."""

    def __init__(self, op, shape, dtype, peers):
        self.spellings, self.upstream = {}, None
        self.n = [int(part) for part in shape.split("x")]
        self.dtype = DTYPES[dtype]
        getattr(self, "make_" + op)(peers)

    def leaf(self, *shape, mean=0.0, deviation=1.0):
        return (torch.randn(*shape, device="cuda") * deviation + mean).to(self.dtype).requires_grad_()

    def random(self, *shape):
        return torch.randn(*shape, device="cuda").to(self.dtype)

    def make_rmsnorm(self, peers):
        x, w = self.leaf(*self.n), self.leaf(self.n[1], mean=1.0, deviation=0.3)
        self.inputs, self.upstream = [x, w], [self.random(*self.n)]
        self.spellings["torch-eager"] = lambda: F.rms_norm(x, (self.n[1],), w, 1e-5)
        if peers["liger"]:
            function = peers["liger"].LigerRMSNormFunction.apply
            self.spellings["liger"] = lambda: function(x, w, 1e-5, 0.0, "llama", False)

    def make_layernorm(self, peers):
        x, w, b = self.leaf(*self.n), self.leaf(self.n[1], mean=1.0, deviation=0.3), self.leaf(self.n[1])
        self.inputs, self.upstream = [x, w, b], [self.random(*self.n)]
        self.spellings["torch-eager"] = lambda: F.layer_norm(x, (self.n[1],), w, b, 1e-5)
        if peers["liger"]:
            self.spellings["liger"] = lambda: peers["liger"].LigerLayerNormFunction.apply(x, w, b, 1e-5)

    def make_rope(self, peers):
        batch, seq, heads, kv_heads, d = self.n
        # As Hugging Face has them: [batch, seq, heads, d] in memory, seen with heads before seq.
        q, k = self.leaf(batch, seq, heads, d), self.leaf(batch, seq, kv_heads, d)
        angle = torch.outer(torch.arange(seq, device="cuda").float(), 1.0 / 10000 ** (torch.arange(0, d, 2, device="cuda").float() / d))
        cos, sin = (torch.cat((angle, angle), -1)[None].cos().to(self.dtype), torch.cat((angle, angle), -1)[None].sin().to(self.dtype))

        def half(x):
            first, second = x.chunk(2, dim=-1)
            return torch.cat((-second, first), dim=-1)

        def rotate():
            qt, kt, c, s = q.transpose(1, 2), k.transpose(1, 2), cos[:, None], sin[:, None]
            return qt * c + half(qt) * s, kt * c + half(kt) * s

        self.inputs = [q, k]
        self.upstream = [self.random(batch, heads, seq, d), self.random(batch, kv_heads, seq, d)]
        self.spellings["torch-eager"] = rotate
        if peers["liger"]:
            function = peers["liger"].LigerRopeFunction.apply
            self.spellings["liger"] = lambda: function(q.transpose(1, 2), k.transpose(1, 2), cos, sin)

    def make_gated(self, act, liger):
        a, b = self.leaf(*self.n), self.leaf(*self.n)
        self.inputs, self.upstream = [a, b], [self.random(*self.n)]
        self.spellings["torch-eager"] = lambda: act(a) * b
        if liger:
            self.spellings["liger"] = lambda: liger.apply(a, b)

    def make_swiglu(self, peers):
        self.make_gated(F.silu, peers["liger"] and peers["liger"].LigerSiLUMulFunction)

    def make_geglu(self, peers):
        self.make_gated(lambda t: F.gelu(t, approximate="tanh"), peers["liger"] and peers["liger"].LigerGELUMulFunction)

    def make_cross_entropy(self, peers):
        logits, target = self.leaf(*self.n), torch.randint(self.n[1], (self.n[0],), device="cuda")
        self.inputs = [logits]
        self.spellings["torch-eager"] = lambda: F.cross_entropy(logits, target)
        if peers["liger"]:  # it writes the gradient over the logits, so each pass gets a fresh view of the same memory
            loss = peers["liger"].LigerCrossEntropyLoss()
            self.spellings["liger"] = lambda: loss(logits, target)

    def make_fused_linear_cross_entropy(self, peers):
        tokens, hidden, vocab = self.n
        x, w = self.leaf(tokens, hidden), self.leaf(vocab, hidden, deviation=hidden**-0.5)
        target = torch.randint(vocab, (tokens,), device="cuda")
        self.inputs = [x, w]
        self.spellings["torch-eager"] = lambda: F.cross_entropy(F.linear(x, w), target)
        if peers["liger"]:
            loss = peers["liger"].LigerFusedLinearCrossEntropyLoss()
            self.spellings["liger"] = lambda: loss(w, x, target)
        if peers["cce"]:
            self.spellings["cut-cross-entropy"] = lambda: peers["cce"].linear_cross_entropy(x, w, target)

    def make_attention(self, peers):
        batch, seq, heads, kv_heads, d = self.n
        q, k, v = (self.leaf(batch, seq, h, d) for h in (heads, kv_heads, kv_heads))
        self.inputs, self.upstream = [q, k, v], [self.random(batch, heads, seq, d)]
        turned = lambda: (t.transpose(1, 2) for t in (q, k, v))

        def with_backend(backend):
            def run():
                with torch.nn.attention.sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(*turned(), is_causal=True, enable_gqa=True)
            return run

        if self.dtype != torch.float32:
            self.spellings["torch-cudnn"] = with_backend(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)
            self.spellings["torch-flash"] = with_backend(torch.nn.attention.SDPBackend.FLASH_ATTENTION)


def passes(case, function, marks):
    """One forward and backward; records the three marks."""
    marks[0].record()
    out = function()
    marks[1].record()
    grads = torch.autograd.grad(out, case.inputs, case.upstream)
    marks[2].record()
    return grads


def measure(case, function, repeats):
    torch._dynamo.reset()
    # As many before what is timed as `tigon bench ops` has run by then: limited by power, a chip is faster after a rest.
    for _ in range(3 + repeats):
        passes(case, function, [torch.cuda.Event() for _ in range(3)])
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(repeats)]
    for three in marks:
        passes(case, function, three)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - base
    fwd, bwd, full = ([a[i].elapsed_time(a[j]) for a in marks] for i, j in ((0, 1), (1, 2), (0, 2)))
    quantiles = statistics.quantiles(full, n=5)
    return {
        "fwd_ms": statistics.median(fwd),
        "bwd_ms": statistics.median(bwd),
        "full_ms": statistics.median(full),
        "q20_ms": quantiles[0],
        "q80_ms": quantiles[-1],
        "peak_bytes": peak,
    }


def measure_tigon(args, op, shapes, dtype):
    """All shapes of an op in one go: starting the program and measuring its ceilings takes longer than the op."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        command = [args.tigon, "bench", "ops", "--device", "cuda", "--variant", "fused", "--ops", op, "--shapes", ",".join(shapes), "--dtype", dtype]
        subprocess.run(command + ["--repeats", str(args.repeats), "--json", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(path) as file:
            return json.load(file)


def compare(args, peers):
    rows = []
    known = list(dict.fromkeys(op for op, _ in CASES))
    for op in args.ops or known:
        if op not in known:
            sys.exit(f"compare_gpu: there is no op '{op}'; expected some of {', '.join(known)}")
        shapes = [shape for of, shape in CASES if of == op]
        for dtype in args.dtype:
            print(f"{op} {dtype} …", file=sys.stderr, flush=True)
            rows += measure_tigon(args, op, shapes + MORE.get(op, []), dtype)
            for shape in shapes:
                rows += measure_peers(args, peers, op, shape, dtype)
            write(rows, args)  # after each op, so that an interrupted run keeps what it has
    return rows


def write(rows, args):
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write(markdown(rows, args))


def measure_peers(args, peers, op, shape, dtype):
    rows = []
    case = Case(op, shape, dtype, peers)
    providers = dict(case.spellings)
    if not args.no_compile and "torch-eager" in providers:
        providers["torch-compile"] = torch.compile(providers["torch-eager"])
    for name, function in providers.items():
        try:
            times = measure(case, function, args.repeats)
            rows.append({"op": op, "shape": shape, "dtype": dtype, "device": "cuda", "provider": name, **times, "floor_ms": 0})
        except Exception as error:
            print(f"  {shape} {name} failed: {str(error).splitlines()[0]}", file=sys.stderr)
    del case, providers
    torch.cuda.empty_cache()
    return rows


def markdown(rows, args):
    providers = ["tigon", *dict.fromkeys(row["provider"] for row in rows if row["provider"] != "tigon")]
    commit = args.commit or subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    lines = [
        "# Tigon beside PyTorch, torch.compile, Liger and Cut Cross Entropy on one GPU",
        "",
        f"Command: `{' '.join(sys.argv)}`  ",
        f"Machine: {torch.cuda.get_device_name()}, driver {driver}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}; commit {commit}  ",
        f"Forward + backward, ms (and peak MiB beyond the inputs), median of {args.repeats}. Peers run through PyTorch, Tigon as kernels. "
        "floor = fewest bytes / copy bandwidth, or fewest FLOPs / GEMM rate, measured in the same run.",
        "",
        "| op | shape | type | floor ms | of limit | " + " | ".join(providers) + " | vs fastest peer |",
        "|---" * (6 + len(providers)) + "|",
    ]
    for op, shape, dtype in dict.fromkeys((row["op"], row["shape"], row["dtype"]) for row in rows):
        by = {row["provider"]: row for row in rows if (row["op"], row["shape"], row["dtype"]) == (op, shape, dtype)}
        ours = by["tigon"]
        others = [row["full_ms"] for name, row in by.items() if name != "tigon"]
        cells = [op, shape, dtype, f"{ours['floor_ms']:.3f}", f"{100 * ours['floor_ms'] / ours['full_ms']:.0f} %"]
        cells += [f"{by[p]['full_ms']:.3f} ({by[p]['peak_bytes'] / 2**20:.0f})" if p in by else "" for p in providers]
        cells.append(f"{min(others) / ours['full_ms']:.2f} ×" if others else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tigon", default="build/tigon", help="the program (default: build/tigon)")
    parser.add_argument("--ops", nargs="*", help="only these ops")
    parser.add_argument("--dtype", nargs="*", default=["bf16"], choices=list(DTYPES))
    parser.add_argument("--repeats", type=int, default=20, help="timed passes")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--commit", help="the commit to write down, where there is no git")
    parser.add_argument("--json", help="write all rows to this file")
    parser.add_argument("--markdown", help="write the table to this file")
    args = parser.parse_args()
    if not os.access(args.tigon, os.X_OK):
        sys.exit(f"compare_gpu: there is no program at {args.tigon}; run ./scripts/build cuda first")
    if not torch.cuda.is_available():
        sys.exit("compare_gpu: PyTorch sees no GPU")
    torch.manual_seed(0)
    liger = optional("liger_kernel.transformers")
    if liger:
        ops = importlib.import_module("liger_kernel.ops")
        for module, name in (("rms_norm", "LigerRMSNormFunction"), ("layer_norm", "LigerLayerNormFunction"), ("rope", "LigerRopeFunction"),
                             ("swiglu", "LigerSiLUMulFunction"), ("geglu", "LigerGELUMulFunction")):
            if not hasattr(liger, name):
                setattr(liger, name, getattr(ops, name, None) or getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name))
    rows = compare(args, {"liger": liger, "cce": optional("cut_cross_entropy")})
    print(markdown(rows, args))


if __name__ == "__main__":
    main()
