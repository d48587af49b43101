#!/usr/bin/env python3
"""Trains a Llama through Transformers on random tokens and compares the steps of several variants.

    train_llama.py --config llama-3.2-1b --device cuda --batch 8 --seq 1024 --checkpointing on --variants plain tigon liger
    train_llama.py --config small --device cpu --threads 2

Variants: plain (Transformers as it is), tigon (apply_tigon_to_llama), liger (apply_liger_kernel_to_llama), and the latter two
without the loss fused with the head (-without-flce; Tigon's then has its cross_entropy of the logits, Liger's torch's). Each
runs in a process of its own, in turns over --rounds; weights are random, nothing is downloaded. --offload keeps weights in
f32, gradients and AdamW on the host by FSDP2, computing in --dtype; --lora R trains PEFT's adapters of rank R on all linear
layers instead. Prints tokens per second (of
the median and of the fastest step after the warm-up), the processor time of a step (on a busy machine steadier than the
clock; on a GPU the host's cost), the peak of memory (allocated on the GPU, resident on the CPU), and the losses of the first
and the last step; writes the table and the raw numbers as it goes.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

CONFIGS = {
    "llama-3.2-1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "tie_word_embeddings": True,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "small": {
        "vocab_size": 32000,
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
VARIANTS = ("plain", "tigon", "tigon-without-flce", "liger", "liger-without-flce")


def patch(variant):
    """Before the model exists: all of Liger's patches work then, and so do Tigon's."""
    fused = not variant.endswith("-without-flce")
    if variant.startswith("tigon"):
        from tigon.transformers import apply_tigon_to_llama

        apply_tigon_to_llama(fused_linear_cross_entropy=fused, cross_entropy=not fused)
    elif variant != "plain":
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        apply_liger_kernel_to_llama(fused_linear_cross_entropy=fused)


def offloaded(model, dtype):
    """FSDP2 over one process, with weights in f32, gradients and the optimizer on the host."""
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29411")
    dist.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=dtype), "offload_policy": CPUOffloadPolicy()}
    for layer in model.model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def with_adapters(model, rank):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
    model.enable_input_require_grads()  # as PEFT asks for where layers are checkpointed
    return model


def peak_memory(device):
    """In bytes."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):  # unlike getrusage's, not inherited from the process that started this one
            return int(line.split()[1]) * 1024
    return 0


def measure(variant, settings):
    """One variant, in this process."""
    import torch
    import transformers

    device, dtype = settings["device"], getattr(torch, settings["dtype"])
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    patch(variant)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**CONFIGS[settings["config"]])
    offload = settings["offload"]
    with torch.device("cpu" if offload else device):
        model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.float32 if offload else dtype).train()
    model.config.use_cache = False
    if settings["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if settings["lora"]:
        model = with_adapters(model, settings["lora"])
    if offload:
        model = offloaded(model, dtype)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(1)
    shape = settings["batch"], settings["seq"]
    times, cpu_times, losses = [], [], []
    for _ in range(settings["warmup"] + settings["steps"]):
        ids = torch.randint(0, config.vocab_size, shape, generator=generator).to(device)
        start, cpu_start = time.perf_counter(), time.process_time()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        if settings["clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())  # waits for the GPU's forward
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    return {
        "variant": variant,
        "step_s": times[settings["warmup"] :],
        "cpu_s": cpu_times[settings["warmup"] :],
        "tokens": shape[0] * shape[1],
        "peak_bytes": peak_memory(device),
        "losses": losses,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device_name": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
    }


def measure_in_process(variant, settings):
    command = [sys.executable, os.path.abspath(__file__), "--measure", variant, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"variant": variant, "error": done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]}
    return json.loads(done.stdout.splitlines()[-1])


def merged(rounds):
    """One result of all rounds of a variant: all steps, the largest peak."""
    good = [r for r in rounds if "error" not in r]
    if not good:
        return rounds[-1]
    steps = {name: [t for r in good for t in r[name]] for name in ("step_s", "cpu_s")}
    return {**good[0], **steps, "peak_bytes": max(r["peak_bytes"] for r in good)}


def table(settings, results):
    first = next((r for r in results if "error" not in r), {})
    lines = [
        f"{settings['config']}, batch {settings['batch']} x {settings['seq']}, {settings['dtype']}, "
        f"checkpointing {'on' if settings['checkpointing'] else 'off'}, {settings['device']} "
        f"({first.get('device_name', '?')}), torch {first.get('torch', '?')}, "
        f"transformers {first.get('transformers', '?')}, AdamW (fused)"
        + (", everything on the host by FSDP2" if settings["offload"] else "")
        + (f", LoRA of rank {settings['lora']} on all linear layers" if settings["lora"] else "")
        + (f", clipped to {settings['clip']}" if settings["clip"] else ""),
        "",
        "| variant | tokens/s | of the fastest step | CPU s a step | peak memory, GB | first loss | last loss |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in results:
        if "error" in r:
            lines.append(f"| {r['variant']} | failed: {' '.join(r['error'])} | | | | | |")
        else:
            lines.append(
                f"| {r['variant']} | {r['tokens'] / statistics.median(r['step_s']):.0f} "
                f"| {r['tokens'] / min(r['step_s']):.0f} | {statistics.median(r['cpu_s']):.2f} "
                f"| {r['peak_bytes'] / 1e9:.2f} | {r['losses'][0]:.4f} | {r['losses'][-1]:.4f} |"
            )
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=CONFIGS, default="small")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["plain", "tigon"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], help="default: bfloat16 on cuda, float32 on cpu")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--checkpointing", choices=["on", "off", "both"], default="off")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6, help="timed steps of each round")
    parser.add_argument("--rounds", type=int, default=1, help="times that each variant is run, in turns")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--clip", type=float, default=0, help="the gradient's norm is clipped to it; 0: it is not")
    parser.add_argument("--offload", action="store_true", help="f32 weights, gradients and AdamW on the host, by FSDP2")
    parser.add_argument("--lora", type=int, default=0, help="rank of PEFT's adapters; 0: all weights are trained")
    parser.add_argument("--output", type=Path, help="writes OUTPUT.md and OUTPUT.json")
    parser.add_argument("--measure", nargs=2, metavar=("VARIANT", "SETTINGS"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.measure:
        variant, settings = arguments.measure
        print(json.dumps(measure(variant, json.loads(settings))))
        return
    names = ("config", "device", "batch", "seq", "warmup", "steps", "threads", "clip", "offload", "lora")
    base = {name: getattr(arguments, name) for name in names}
    base["dtype"] = arguments.dtype or ("bfloat16" if arguments.device == "cuda" else "float32")
    tables, raw = {}, []
    for checkpointing in {"on": [True], "off": [False], "both": [True, False]}[arguments.checkpointing]:
        settings = {**base, "checkpointing": checkpointing}
        rounds = {variant: [] for variant in arguments.variants}
        for _ in range(arguments.rounds):
            for variant in arguments.variants:
                rounds[variant].append(measure_in_process(variant, settings))
                raw.append({**settings, **rounds[variant][-1]})
                tables[checkpointing] = table(settings, [merged(r) for r in rounds.values() if r])
                if arguments.output:
                    arguments.output.with_suffix(".md").write_text("\n\n".join(tables.values()) + "\n")
                    arguments.output.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
        print(tables[checkpointing], end="\n\n", flush=True)


if __name__ == "__main__":
    main()
