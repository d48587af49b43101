"""Adapters beside a model in NF4, held against bitsandbytes: its operators, the folders that Transformers writes with it."""

import json
import shutil

import pytest
import torch
from conftest import read_log
from families import make
from peft import PeftModel
from safetensors.torch import load_file, save_file
from test_against_transformers import SEQ, VOCAB, batch, loss_of, relative, tokens_for, train
from test_lora import ALL
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

functional = pytest.importorskip("bitsandbytes.functional", reason="bitsandbytes is not installed")

FLAGS = ["--lora", "r=4", "--precision", "bf16", "--lr", 1e-2, "--schedule", "constant"]
FORMS = {
    "plain": [],
    "block": ["--recompute", "block"],
    "tiled": ["--mlp-tile", "7", "--recompute", "block"],
    "micro": ["--accumulate", "2"],
    "away": ["--offload", "optimizer,checkpoints=host", "--recompute", "block"],
    "all": ["--offload", "all+checkpoints", "--order", "layers", "--accumulate", "2"],
    "layers": ["--order", "layers", "--accumulate", "2"],
    "sr": ["--precision", "bf16-sr"],
    "fp16": ["--precision", "fp16"],
    "fp32": ["--precision", "fp32"],
}


def flat_dequantized(codes, state):
    """Of a flat array: in 0.50 the operator for CPUs misplaces scales of matrices whose rows are no whole blocks, such as
    48 x 80."""
    shape, state.shape = state.shape, torch.Size([state.shape.numel()])
    return functional.dequantize_4bit(codes, state).reshape(shape)


def through_nf4(weight):
    """What a weight is after NF4 with scales in 8 bits around their exact mean, of the nearest codes."""
    codes, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    mean = state.absmax.double().mean().float()
    table = functional.create_dynamic_map()
    numbers, groups = torch.ops.bitsandbytes.quantize_blockwise((state.absmax - mean).double(), table, 256)
    state.absmax = torch.ops.bitsandbytes.dequantize_blockwise(numbers, groups, table, 256, torch.float32) + mean
    return flat_dequantized(codes, state)


def is_quantized(name):
    return any(f".{module}.weight" in name for module in ALL)


def change_weights(folder, change, target):
    shutil.copytree(folder, target)
    weights = load_file(folder / "model.safetensors")
    save_file(change(weights), target / "model.safetensors", {"format": "pt"})
    return target


def dequantized(folder, target, dtype=torch.bfloat16):
    def change(weights):
        return {k: through_nf4(v).to(dtype) if is_quantized(k) else v for k, v in weights.items()}

    return change_weights(folder, change, target)


def by_bitsandbytes(folder, target, **options):
    """The folder that Transformers writes of a model that bitsandbytes has quantized."""
    config = BitsAndBytesConfig(
        load_in_4bit=True, **({"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True} | options)
    )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=config)
    model.save_pretrained(target)
    return target


def same_runs(tigon, tmp_path, data, models, flags):
    """Runs of the same adapters on each of (folder, flags): every loss and every byte of the adapters."""
    logs, adapters = [], []
    for i, (model, more) in enumerate(models):
        log, out = tmp_path / f"log{i}", tmp_path / f"out{i}"
        train(tigon, model, data, *FLAGS, *flags, *more, "--steps", 4, "--log", log, "--output", out)
        lines = read_log(log)
        assert lines[-1]["planned_bytes"] == lines[-1]["used_bytes"]
        logs.append([line["loss"] for line in lines if "loss" in line])
        adapters.append((out / "adapter_model.safetensors").read_bytes())
    assert all(log == logs[0] for log in logs)
    assert all(a == adapters[0] for a in adapters)
    return logs[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_base_in_nf4_is_the_base_of_what_it_stands_for(tigon, tmp_path, write_tokens, form):
    folder = tmp_path / "model"
    make("llama3", folder, torch.bfloat16)
    # The dequantized value is rounded once, to the run's type.
    dtype = {"fp16": torch.float16, "fp32": torch.float32}.get(form, torch.bfloat16)
    if dtype != torch.bfloat16:
        # bitsandbytes rounds to the type that it has quantized, which for this has to be the run's.
        change_weights(folder, lambda w: {k: v.to(dtype) for k, v in w.items()}, tmp_path / "other")
        folder = tmp_path / "other"
    tokens = tokens_for(8)
    data = write_tokens(tokens.tolist(), VOCAB)
    whole = dequantized(folder, tmp_path / "whole", dtype)
    losses = same_runs(tigon, tmp_path, data, [(folder, ["--base", "nf4"]), (whole, [])], FORMS[form])
    assert losses[0] > losses[-1]


@pytest.mark.parametrize("name", ["llama3.2", "qwen2", "qwen3", "gemma"])
def test_every_family(tigon, tmp_path, write_tokens, name):
    folder = tmp_path / "model"
    make(name, folder, torch.bfloat16)
    data = write_tokens(tokens_for(4).tolist(), VOCAB)
    whole = dequantized(folder, tmp_path / "whole")
    same_runs(tigon, tmp_path, data, [(folder, ["--base", "nf4"]), (whole, [])], [])


@pytest.mark.parametrize("name", ["llama3", "qwen2"])
def test_a_folder_of_bitsandbytes(tigon, tmp_path, write_tokens, name):
    folder = tmp_path / "model"
    make(name, folder, torch.bfloat16)
    quantized = by_bitsandbytes(folder, tmp_path / "quantized")
    stored = load_file(quantized / "model.safetensors")

    def change(weights):
        whole = {}
        for key, value in weights.items():
            parts = {k.removeprefix(key + "."): v for k, v in stored.items() if k.startswith(key + ".")}
            if is_quantized(key):
                state = functional.QuantState.from_dict(dict(parts), torch.device("cpu"))
                value = flat_dequantized(stored[key], state)
            whole[key] = value
        return whole

    whole = change_weights(folder, change, tmp_path / "whole")
    data = write_tokens(tokens_for(4).tolist(), VOCAB)
    losses = same_runs(tigon, tmp_path, data, [(quantized, ["--base", "nf4"]), (whole, [])], [])
    # What is read and not trained, too.
    flags = ["--precision", "bf16", "--data", data, "--seq", 16]
    figures = [tigon("eval", "--model", path, *flags).stdout.split(";")[0] for path in (quantized, whole)]
    assert "loss" in figures[0]
    assert figures[0] == figures[1]
    model = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32)
    assert losses[0] == pytest.approx(loss_of(model, *batch(tokens_for(4), 0)).item(), rel=3e-3)


def test_resuming_and_the_folders(tigon, tmp_path, write_tokens):
    folder = tmp_path / "model"
    make("llama3", folder, torch.bfloat16)
    data = write_tokens(tokens_for(6).tolist(), VOCAB)
    flags = [*FLAGS, "--base", "nf4"]
    train(tigon, folder, data, *flags, "--steps", 6, "--output", tmp_path / "whole")
    run = ["--checkpoints", tmp_path / "run"]
    train(tigon, folder, data, *flags, *run, "--steps", 3)
    refused = tigon(
        "train", "--config", tmp_path / "run/step-00000003/run.toml", "--base", "full", "--resume", check=False
    )
    assert refused.returncode == 2
    assert "frozen weights (--base)" in refused.stderr
    train(tigon, folder, data, *flags, *run, "--steps", 6, "--resume", "--output", tmp_path / "resumed")
    weights = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert weights[0] == weights[1]
    # PEFT loads the adapters beside the model in 4 bits and beside the whole one, onto which they are merged.
    by_bitsandbytes(folder, tmp_path / "quantized")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "quantized", dtype=torch.bfloat16)
    in_4_bits = PeftModel.from_pretrained(base, tmp_path / "resumed")
    for key, value in load_file(tmp_path / "resumed/adapter_model.safetensors").items():
        assert torch.equal(in_4_bits.state_dict()[key.replace(".weight", ".default.weight")].to(value.dtype), value)
    ids, _ = batch(tokens_for(6), 0)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    logits = PeftModel.from_pretrained(base, tmp_path / "resumed")(ids).logits.detach().float()
    tigon("merge", "--model", folder, "--adapters", tmp_path / "resumed", "--output", tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.bfloat16)
    assert relative(merged(ids).logits.detach().float(), logits) < 3e-2
    refused = tigon(
        "merge", "--model", tmp_path / "quantized", "--adapters", tmp_path / "resumed", "--output", tmp_path / "no",
        check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "in 4 bits" in refused.stderr
    assert "16-bit weights" in refused.stderr


def test_random_weights_and_a_plan(tigon, tmp_path):
    flags = ["--lora", "r=4", "--batch", 1, "--seq", 16, "--precision", "bf16"]
    plans = [tigon("plan", *flags, *more).stdout for more in ([], ["--base", "nf4"])]
    whole, nf4 = (int(next(row for row in p.splitlines() if row.startswith("weights")).split()[-1]) for p in plans)
    assert nf4 < whole / 2
    tigon("train", *flags, "--base", "nf4", "--steps", 2, "--log", tmp_path / "log")
    end = read_log(tmp_path / "log")[-1]
    assert end["planned_bytes"] == end["used_bytes"]


def test_what_makes_no_sense_is_refused(tigon):
    for flags, word in [
        (["--base", "nf4"], "--lora"),
        (["--base", "int4", "--lora", "r=4"], "--base"),
    ]:
        refused = tigon("plan", *flags, check=False)
        assert refused.returncode == 2, flags
        assert word in refused.stderr, flags


def test_hostile_folders(tigon, tmp_path, write_tokens):
    folder = tmp_path / "model"
    make("llama3", folder, torch.bfloat16)
    data = write_tokens(tokens_for(1).tolist(), VOCAB)
    quantized = by_bitsandbytes(folder, tmp_path / "quantized")
    name = "model.layers.1.mlp.up_proj.weight"
    state = name + ".quant_state.bitsandbytes__nf4"
    stored = load_file(quantized / "model.safetensors")
    said = json.loads(bytes(stored[state].tolist()))
    count = iter(range(1000))

    def refused(model, *flags):
        result = tigon(
            "train", "--model", model, "--data", data, "--batch", 1, "--seq", SEQ, "--steps", 1, *flags, check=False
        )
        assert result.returncode in (1, 2), result.stdout + result.stderr
        return result.stderr

    def with_tensors(**changes):
        target = tmp_path / f"bad{next(count)}"

        def change(weights):
            weights |= {name + key: value for key, value in changes.items() if value is not None}
            return {k: v for k, v in weights.items() if k not in [name + c for c, v in changes.items() if v is None]}

        return refused(change_weights(quantized, change, target), "--lora", "r=4", "--base", "nf4")

    def with_state(**changes):
        text = json.dumps({k: v for k, v in (said | changes).items() if v is not ...})
        return with_tensors(**{state.removeprefix(name): torch.tensor(list(text.encode()), dtype=torch.uint8)})

    assert "in 4 bits" in refused(quantized)
    assert "in 4 bits" in refused(quantized, "--lora", "r=4")
    for key in [".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", state.removeprefix(name)]:
        assert f"'{name}{key}' is not in the files" in with_tensors(**{key: None})
    for key in ["", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"]:
        whole = stored[name + key]
        assert f"'{name}{key}' does not fit" in with_tensors(**{key: whole.reshape(-1)[1:].clone()})
        if key:
            assert f"'{name}{key}' does not fit" in with_tensors(**{key: whole.double()})
    assert "not finite" in with_tensors(**{".nested_absmax": stored[name + ".nested_absmax"] * float("nan")})
    assert "another map" in with_tensors(**{".quant_map": stored[name + ".quant_map"].flip(0)})
    assert "another map" in with_tensors(**{".nested_quant_map": stored[name + ".nested_quant_map"] * 0.5})
    assert "is no weight" in with_tensors(**{".quant_state.bitsandbytes__fp4": stored[state]})
    assert "is no text" in with_tensors(**{state.removeprefix(name): torch.zeros(70000, dtype=torch.uint8)})
    assert "'quant_type'" in with_state(quant_type="fp4")
    assert "'blocksize'" in with_state(blocksize=128)
    assert "'nested_blocksize'" in with_state(nested_blocksize=64)
    assert "'nested_dtype'" in with_state(nested_dtype="float16")
    assert "'shape'" in with_state(shape=[1, 2])
    assert "not finite" in with_state(nested_offset=1e300)
    assert "'nested_offset'" in with_state(nested_offset=...)
    for text in ["", "{", "[]", '{"quant_type": 1}']:
        with_tensors(**{state.removeprefix(name): torch.tensor(list(text.encode()), dtype=torch.uint8)})
    for options in [{"bnb_4bit_quant_type": "fp4"}, {"bnb_4bit_use_double_quant": False}]:
        other = by_bitsandbytes(folder, tmp_path / f"other{next(count)}", **options)
        assert "quantization_config" in refused(other, "--lora", "r=4", "--base", "nf4")
