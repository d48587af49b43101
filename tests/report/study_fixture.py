"""Study folders as `tigon study` writes them, with made-up numbers: what pages and figures are tested on."""

import csv
import json

LAYERS, HIDDEN, VOCAB, PARAMETERS = 16, 2048, 128256, 1235814400
CAP = 24 << 30
STRATEGIES = [
    ("unfused", "No fused kernels", "--fused none --recompute block"),
    ("but-loss", "All but the loss", "--fused rope,swiglu,rmsnorm --recompute block"),
    ("fused", "Fused kernels", "--recompute block"),
    ("offload", "Fused, offloaded", "--recompute block --offload all"),
]
CLASSES = ["weights", "gradients", "states", "layer inputs", "activations", "loss", "workspace", "other"]
OPS = ["norm1", "qkv", "attention", "o_proj", "norm2", "gate_up", "activation", "down"]


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def timeline(strategy, batch, seq, blocks_wanted=0):
    """A step's blocks: what stays, forward, the loss, backward, the update."""
    tokens = batch * seq
    names, places, rows, phases = [], [""], [], []
    clock, top = [0], [0]
    index = {}

    def number(values, value):
        return (
            index.setdefault((id(values), value), len(values)) if (id(values), value) in index else _add(values, value)
        )

    def _add(values, value):
        index[(id(values), value)] = len(values)
        values.append(value)
        return len(values) - 1

    def birth(name, kind, size, place=""):
        rows.append(
            [
                number(names, name),
                CLASSES.index(kind),
                size,
                top[0],
                clock[0],
                -1,
                number(places, place) if place else 0,
            ]
        )
        top[0] += size
        clock[0] += 1000
        return len(rows) - 1

    def death(row):
        rows[row][5] = clock[0]
        top[0] -= rows[row][2]
        clock[0] += 1000

    static = 0.15 if strategy == "offload" else 1
    birth("weights", "weights", int(2 * PARAMETERS * static))
    birth("gradients", "gradients", int(2 * PARAMETERS * static))
    if strategy != "offload":
        birth("states", "states", 4 * PARAMETERS)
    for row in rows:
        row[4] = 0
    clock[0] = 1000
    sub = max(1, blocks_wanted // (LAYERS * len(OPS) * 2))
    begin, inputs = clock[0], []
    widths = {"qkv": 3072, "gate_up": 16384, "activation": 8192}

    def stage(phase, layer, op, part):
        width = widths.get(op, HIDDEN)
        return birth(
            f"layers.{layer}.{op}{f'.{part}' if part else ''}",
            "activations",
            tokens * width * 2 // sub,
            f"{phase} · layers.{layer} · {op} · linear_forward",
        )

    for layer in range(LAYERS):
        inputs.append(birth(f"layers.{layer}.input", "layer inputs", tokens * HIDDEN * 2, f"forward · layers.{layer}"))
        held = []
        for op in OPS:
            held += [stage("forward", layer, op, part) for part in range(sub)]
            while len(held) > 3 * sub:
                death(held.pop(0))
        for row in held:
            death(row)
    phases.append({"name": "forward", "begin": begin, "end": clock[0]})
    begin = clock[0]
    if strategy in ("unfused", "but-loss"):
        held = [
            birth(name, "loss", tokens * VOCAB * 4, "loss · cross_entropy")
            for name in ("logits", "probabilities", "dlogits")
        ]
    else:
        held = [birth("logits chunk", "loss", 1024 * VOCAB * 2, "loss · fused_linear_cross_entropy")]
    for row in held:
        death(row)
    phases.append({"name": "loss", "begin": begin, "end": clock[0]})
    begin = clock[0]
    for layer in reversed(range(LAYERS)):
        held = [stage("backward", layer, op, part) for op in OPS for part in range(sub)]
        for row in reversed(held):
            death(row)
        death(inputs.pop())
    phases.append({"name": "backward", "begin": begin, "end": clock[0]})
    phases.append({"name": "update", "begin": clock[0], "end": clock[0] + 40000})
    clock[0] += 40000
    changes = sorted([(r[4], 1, r[2]) for r in rows] + [(r[5], 0, -r[2]) for r in rows if r[5] >= 0])
    alive = peak = 0
    for _, _, size in changes:
        alive += size
        peak = max(peak, alive)
    columns = ["name", "class", "bytes", "offset", "birth", "death", "place"]
    return {
        "format": "tigon-memory",
        "version": 1,
        "unit": "ns",
        "step": 12,
        "total_bytes": peak + (64 << 20),
        "peak_bytes": peak,
        "classes": CLASSES,
        "names": names,
        "places": places,
        "phases": phases,
        "blocks": {name: [row[i] for row in rows] for i, name in enumerate(columns)},
    }


def peak_of(memory):
    """By class, and who is alive, at the peak."""
    b = memory["blocks"]
    changes = sorted(
        [(t, 1, i) for i, t in enumerate(b["birth"])] + [(t, 0, i) for i, t in enumerate(b["death"]) if t >= 0]
    )
    alive, now, best, then = set(), 0, 0, set()
    for _, born, i in changes:
        (alive.add if born else alive.discard)(i)
        now += b["bytes"][i] * (1 if born else -1)
        if now > best:
            best, then = now, set(alive)
    classes, rows = {}, {}
    for i in then:
        kind, parts = CLASSES[b["class"][i]], memory["names"][b["name"][i]].split(".")
        name = ".".join(["layers", "*", *parts[2:]]) if parts[0] == "layers" else parts[0]
        classes[kind] = classes.get(kind, 0) + b["bytes"][i]
        row = rows.setdefault(name, {"name": name, "class": kind, "bytes": 0, "count": 0})
        row["bytes"] += b["bytes"][i]
        row["count"] += 1
    return classes, sorted(rows.values(), key=lambda r: -r["bytes"])


def times(strategy, seconds):
    fused = strategy not in ("unfused",)
    rows = []
    share = {"norm1": 2, "qkv": 9, "attention": 12, "o_proj": 6, "norm2": 2, "gate_up": 28, "activation": 3, "down": 14}
    for phase, weight in (("forward", 1), ("recompute", 1), ("backward", 2)):
        for name, part in share.items():
            slow = 3 if not fused and name in ("norm1", "norm2", "activation") else 1
            rows.append(
                {
                    "phase": phase,
                    "name": name,
                    "calls": LAYERS,
                    "part": weight * part * slow,
                    "floor": weight * part * 0.8,
                }
            )
    rows.append({"phase": "forward", "name": "loss", "calls": 1, "part": 60 if fused else 110, "floor": 50})
    rows.append({"phase": "update", "name": "adamw", "calls": 1, "part": 12, "floor": 10})
    rows.append({"phase": "other", "name": "gaps", "calls": 1, "part": 5})
    total = sum(row["part"] for row in rows)
    for row in rows:
        row["seconds"] = seconds * row.pop("part") / total
        if "floor" in row:
            row["floor_seconds"] = 0.9 * seconds * row.pop("floor") / total / (1 if fused else 1.4)
    return {"format": "tigon-times", "version": 1, "step": 12, "seconds": seconds, "rows": rows}


def point(strategy, batch, seq, memory):
    classes, alive = peak_of(memory)
    tokens = batch * seq
    planned = memory["total_bytes"]
    classes["packing"] = planned - sum(classes.values())
    name = f"{strategy}-b{batch}-s{seq}"
    fits = planned <= CAP
    result = {
        "format": "tigon-study-point",
        "version": 1,
        "id": name,
        "strategy": strategy,
        "batch": batch,
        "accumulate": 1,
        "seq": seq,
        "command": f"tigon train --model llama-3.2-1b --batch {batch} --seq {seq} --log log.jsonl",
        "status": "done" if fits else "out of memory",
        "proved": not fits and batch == 64,
        "why": ""
        if fits
        else f"the plan needs {planned / 2**30:.1f} GiB, {(planned - CAP) / 2**30:.1f} GiB more than --cap",
        "planned": {"device": planned, "pinned": 0, "host": 12 * PARAMETERS if strategy == "offload" else 0, "disk": 0},
        "by_class": classes,
        "alive_at_peak": alive,
        "formulas": {
            "static_bytes": 8 * PARAMETERS,
            "static_mixed_16p": 16 * PARAMETERS,
            "checkpoints": tokens * HIDDEN * 2 * LAYERS,
            "logits": tokens * VOCAB * 4,
            "chunk_logits": 64 * VOCAB * 4,
        },
    }
    if not fits:
        return result
    fastest = {"unfused": 43000, "but-loss": 55000, "fused": 62000, "offload": 48000}[strategy]
    half = {"offload": 24000}.get(strategy, 2500)
    rate = fastest * tokens / (tokens + half) * (1 - seq / 200000)
    step = tokens / rate
    result["measured"] = {
        "steps": 10,
        "tokens": tokens,
        "seconds": {"median": step, "q20": step * 0.985, "q80": step * 1.03},
        "tokens_per_second": {"median": rate, "q20": rate / 1.03, "q80": rate / 0.985},
        "used_bytes": planned,
        "beyond_plan_bytes": 480 << 20,
        "process_peak_bytes": planned + (900 << 20),
        "loss": 11.7625 + batch / 1e4,
        "gemm_share": 0.62,
    }
    if strategy == "offload":
        copies = 1500 / (tokens + 1500)
        result["measured"]["waits"] = {"compute": 1 - 1.4 * copies, "copies": copies, "update": 0.4 * copies}
    return result


def kernels():
    rows = []
    for op, shape, floor, fused, unfused in [
        ("rmsnorm", "8192x4096", 0.079, 0.094, 0.717),
        ("rope", "4x2048x32x8x64", 0.079, 0.09, 1.107),
        ("swiglu", "8192x8192", 0.2, 0.23, 0.61),
        ("cross_entropy", "4096x128256", 0.53, 0.61, 2.9),
        ("fused_linear_cross_entropy", "4096x2048x128256", 9.1, 10.4, 15.9),
        ("attention", "4x1024x32x8x64", 0.31, 0.52, 4.1),
    ]:
        for provider, ms, peak in (("tigon", fused, 1 << 26), ("tigon-unfused", unfused, 5 << 26)):
            rows.append(
                {
                    "op": op,
                    "shape": shape,
                    "dtype": "bf16",
                    "device": "cuda:0",
                    "provider": provider,
                    "fwd_ms": ms / 3,
                    "bwd_ms": ms * 2 / 3,
                    "full_ms": ms,
                    "q20_ms": ms * 0.98,
                    "q80_ms": ms * 1.04,
                    "peak_bytes": peak,
                    "floor_ms": floor,
                }
            )
    return rows


def make_study(folder, batches=(1, 4, 8, 16, 32, 64), seqs=(512, 1024, 2048, 4096, 8192), strategies=STRATEGIES):
    grid = [(s[0], b, 1024) for s in strategies for b in batches] + [
        (s[0], 4, q) for s in strategies for q in seqs if q != 1024
    ]
    grid = [(s, b, q) for s, b, q in grid]
    points = []
    for strategy, batch, seq in grid:
        memory = timeline(strategy, batch, seq)
        result = point(strategy, batch, seq, memory)
        points.append(result)
        at = folder / "points" / result["id"]
        write(at / "point.json", result)
        write(at / "memory.json", memory)
        (at / "memory.pickle").write_bytes(b"")
        if result["status"] == "done":
            write(at / "times.json", times(strategy, result["measured"]["seconds"]["median"]))
            (at / "log.jsonl").write_text("{}\n")
    write(
        folder / "study.json",
        {
            "format": "tigon-study",
            "version": 1,
            "name": "single-gpu",
            "title": "Everything on one GPU",
            "tigon": "0.1.0",
            "created": "2026-11-19T02:00:00Z",
            "command": "tigon study --preset single-gpu --cap 24GiB --output study",
            "machine": {
                "cpu": "INTEL XEON PLATINUM 8580",
                "threads": 16,
                "memory_bytes": 128 << 30,
                "device": "cuda:0",
                "device_name": "NVIDIA H200",
                "device_memory_bytes": 139 << 30,
            },
            "model": {
                "name": "llama-3.2-1b",
                "parameters": PARAMETERS,
                "layers": LAYERS,
                "hidden": HIDDEN,
                "vocab": VOCAB,
            },
            "rates": {"gemm_flops_per_second": 7.4e14, "copy_bytes_per_second": 4.1e12},
            "cap_bytes": CAP,
            "strategies": [dict(zip(("name", "title", "flags"), s, strict=True)) for s in strategies],
            "points": [{key: p[key] for key in ("id", "strategy", "batch", "accumulate", "seq")} for p in points],
        },
    )
    write(folder / "kernels.json", kernels())
    write_results(folder, points)
    return points


def write_results(folder, points):
    with open(folder / "results.csv", "w", newline="") as file:
        columns = [
            "id",
            "strategy",
            "title",
            "batch",
            "accumulate",
            "seq",
            "status",
            "proved",
            "planned_device_bytes",
            "planned_pinned_bytes",
            "planned_host_bytes",
            "planned_disk_bytes",
            "peak_bytes",
            "process_peak_bytes",
            "tokens_per_second",
            "tokens_per_second_q20",
            "tokens_per_second_q80",
            "seconds",
            "seconds_q20",
            "seconds_q80",
            "loss",
            "gemm_share",
            "compute_share",
            "copies_share",
            "update_share",
            "why",
        ]
        rows = csv.DictWriter(file, columns, extrasaction="ignore")
        rows.writeheader()
        for p in points:
            row = dict(p) | {f"planned_{place}_bytes": size for place, size in p["planned"].items()}
            row["proved"] = "yes" if p["proved"] else "no"
            if "measured" in p:
                m = p["measured"]
                row |= {key: m[key] for key in ("process_peak_bytes", "loss", "gemm_share")}
                row["peak_bytes"] = p["planned"]["device"] + m["beyond_plan_bytes"]
                for key in ("tokens_per_second", "seconds"):
                    row |= {key: m[key]["median"], f"{key}_q20": m[key]["q20"], f"{key}_q80": m[key]["q80"]}
                row |= {f"{key}_share": share for key, share in m.get("waits", {}).items()}
            rows.writerow(row)


if __name__ == "__main__":
    import sys
    from pathlib import Path

    make_study(Path(sys.argv[1]))
