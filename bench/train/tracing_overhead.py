#!/usr/bin/env python3
"""What recording a run costs: steps of small models, whose ops are short, with and without each flag, in turns.

    bench/train/tracing_overhead.py build/tigon [another build's tigon]

Prints milliseconds of the step that 1 in 20 are faster than, and the least CPU seconds of a run, which include writing."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, ROUNDS = 40, 5
RUNS = {
    "llama-bytes-1m, 1 x 64": ["--model", "llama-bytes-1m", "--batch", "1", "--seq", "64"],
    "llama-bytes-1m, 4 x 128": ["--model", "llama-bytes-1m", "--batch", "4", "--seq", "128"],
}
WAYS = {
    "nothing": [],
    "--tensorboard": ["--tensorboard", "@tb"],
    "--snapshot": ["--snapshot", "@s"],
    "--trace, 3 steps": ["--trace", "@t.pt.trace.json.gz"],
    "--trace, all steps": ["--trace", "@t.pt.trace.json", "--trace-steps", f"1-{STEPS}"],
    "--trace, all steps, gz": ["--trace", "@t.pt.trace.json.gz", "--trace-steps", f"1-{STEPS}"],
}


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def one(program, arguments):
    """Seconds of each step but the first five, the run's CPU seconds, bytes of what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [a.replace("@", folder + "/") for a in arguments]
        log, before = folder + "/log", cpu_seconds()
        subprocess.run(
            [program, "train", *arguments, "--threads", "1", "--steps", str(STEPS), "--no-gemm-ceiling", "--log", log],
            check=True,
            capture_output=True,
        )
        spent = cpu_seconds() - before
        lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
        written = sum(file.stat().st_size for file in Path(folder).iterdir() if file.is_file() and file.name != "log")
        return [line["seconds"] for line in lines if "seconds" in line][5:], spent, written


programs = sys.argv[1:]
print("| run | flags | ms a step | CPU s a run | MB written |")
print("|---|---|---|---|---|")
for name, arguments in RUNS.items():
    ways = {way: (programs[0], flags) for way, flags in WAYS.items()}
    ways.update({f"nothing, {program}": (program, []) for program in programs[1:]})
    results = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, (program, flags) in ways.items():
            results[way].append(one(program, arguments + flags))
    for way, runs in results.items():
        steps = sorted(second for run in runs for second in run[0])
        least = min(run[1] for run in runs)
        print(
            f"| {name} | {way} | {1e3 * steps[len(steps) // 20]:.2f} | {least:.3f} | {runs[0][2] / 1e6:.2f} |",
            flush=True,
        )
