"""Adapters: losses, gradients and ten steps against PEFT, and the folders of both."""

import json

import pytest
import torch
from conftest import read_log
from families import CONFIGS, make
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from test_against_transformers import BATCH, SEQ, VOCAB, batch, loss_of, relative, tokens_for, train
from transformers import AutoModelForCausalLM

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FAMILIES = ["llama3", "llama3.2", "qwen2", "qwen3", "gemma"]
FORMS = {
    "plain": [],
    "unfused": ["--fused", "none"],
    "block": ["--recompute", "block"],
    "tiled": ["--mlp-tile", "7", "--recompute", "block"],
    "away": ["--offload", "all+checkpoints", "--recompute", "block"],
    "layers": ["--order", "layers", "--accumulate", "1", "--offload", "all"],
}


def adapted(base, targets=ALL, **options):
    """Adapters whose B is not zero, as after some training."""
    config = LoraConfig(r=4, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM", **options)
    model = get_peft_model(base, config)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.05)
    return model


def adapter_gradients(model):
    return {
        name.replace(".default", ""): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_every_gradient(tigon, tmp_path, write_tokens, name, form):
    model = adapted(make(name, tmp_path / "model"))
    model.save_pretrained(tmp_path / "adapters")
    tokens = tokens_for(1)
    data = write_tokens(tokens.tolist(), VOCAB)
    log, grads = tmp_path / "log", tmp_path / "grads.safetensors"
    train(
        tigon, tmp_path / "model", data, "--adapters", tmp_path / "adapters", "--steps", 1, "--log", log,
        "--save-gradients", grads, *FORMS[form],
    )  # fmt: skip
    loss = loss_of(model, *batch(tokens, 0))
    loss.backward()
    assert read_log(log)[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    expected, ours = adapter_gradients(model), load_file(grads)
    assert set(ours) == set(expected)
    for key, theirs in expected.items():
        assert relative(ours[key], theirs) < 1e-5, key
    norm = torch.stack([g.norm() for g in expected.values()]).norm().item()
    assert read_log(log)[0]["grad_norm"] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize(
    "targets", [["q_proj", "v_proj"], ["k_proj"], ["up_proj", "down_proj"], ["gate_proj", "o_proj"]]
)
@pytest.mark.parametrize("name", ["llama3", "qwen3"])
@pytest.mark.parametrize("form", ["plain", "tiled"])
def test_some_matrices_alone(tigon, tmp_path, write_tokens, name, targets, form):
    options = {"use_rslora": True, "alpha_pattern": {targets[0]: 3}, "rank_pattern": {targets[-1]: 3, "q_proj": 5}}
    model = adapted(make(name, tmp_path / "model"), targets, **options)
    model.save_pretrained(tmp_path / "adapters")
    tokens = tokens_for(1)
    data = write_tokens(tokens.tolist(), VOCAB)
    grads = tmp_path / "grads.safetensors"
    train(
        tigon, tmp_path / "model", data, "--adapters", tmp_path / "adapters", "--steps", 1, "--save-gradients", grads,
        *FORMS[form],
    )  # fmt: skip
    loss_of(model, *batch(tokens, 0)).backward()
    expected, ours = adapter_gradients(model), load_file(grads)
    assert set(ours) == set(expected)
    for key, theirs in expected.items():
        assert relative(ours[key], theirs) < 1e-5, key


@pytest.mark.parametrize("name", FAMILIES)
def test_ten_steps_and_the_folders(tigon, tmp_path, write_tokens, name):
    model = adapted(make(name, tmp_path / "model"))
    model.save_pretrained(tmp_path / "adapters")
    steps, lr = 10, 1e-3
    tokens = tokens_for(steps)
    data = write_tokens(tokens.tolist(), VOCAB)
    log = tmp_path / "log"
    train(
        tigon, tmp_path / "model", data, "--adapters", tmp_path / "adapters", "--steps", steps, "--lr", lr,
        "--schedule", "constant", "--weight-decay", 0.1, "--clip", 0.7, "--log", log, "--output", tmp_path / "trained",
    )  # fmt: skip
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, *batch(tokens, step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 0.7)
        optimizer.step()
        assert read_log(log)[step]["loss"] == pytest.approx(loss.item(), rel=1e-4), step

    # PEFT loads what was written, and it is the model that PEFT has trained.
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ours = PeftModel.from_pretrained(base, tmp_path / "trained")
    ids, _ = batch(tokens, 0)
    with torch.no_grad():
        expected, got = model(ids).logits, ours(ids).logits
    assert relative(got, expected) < 1e-3
    # Merged, it is a model that needs no adapters.
    tigon("merge", "--model", tmp_path / "model", "--adapters", tmp_path / "trained", "--output", tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    with torch.no_grad():
        assert relative(merged(ids).logits, got) < 1e-5


def test_new_adapters_begin_as_the_model_and_resume_bitwise(tigon, tmp_path, write_tokens):
    model = make("llama3.2", tmp_path / "model")
    tokens = tokens_for(6)
    data = write_tokens(tokens.tolist(), VOCAB)
    flags = ["--lora", "r=2,targets=q_proj+down_proj", "--lr", 1e-2, "--schedule", "constant"]
    train(
        tigon, tmp_path / "model", data, *flags, "--steps", 6, "--log", tmp_path / "log", "--output", tmp_path / "whole"
    )
    assert read_log(tmp_path / "log")[0]["loss"] == pytest.approx(loss_of(model, *batch(tokens, 0)).item(), rel=1e-5)
    run = ["--checkpoints", tmp_path / "run"]
    train(tigon, tmp_path / "model", data, *flags, *run, "--steps", 3)
    checkpoint = tmp_path / "run" / "step-00000003"
    assert sorted(f.name for f in checkpoint.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "checkpoint.json", "run.toml", "state.safetensors",
    ]  # fmt: skip
    PeftModel.from_pretrained(model, checkpoint)
    train(
        tigon, tmp_path / "model", data, *flags, *run, "--steps", 6, "--resume", "--offload", "all", "--output",
        tmp_path / "resumed",
    )  # fmt: skip
    weights = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert weights[0] == weights[1]
    # Another model of the same shape is another run.
    other = make("llama3.2", tmp_path / "other")
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight.mul_(2)
    other.save_pretrained(tmp_path / "other")
    refused = tigon(
        "train", "--config", checkpoint / "run.toml", "--model", tmp_path / "other", "--resume", check=False
    )
    assert refused.returncode == 2
    assert "numbers of the frozen model (--model)" in refused.stderr
    # Other adapters are another run.
    refused = tigon(
        "train", "--model", tmp_path / "model", "--data", data, "--batch", BATCH, "--seq", SEQ, "--sequential",
        "--ignore-token", 7, "--lora", "r=4", *run, "--resume", "--steps", 9, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "adapters (--lora)" in refused.stderr


@pytest.mark.parametrize("precision", ["bf16", "bf16-sr", "fp16"])
def test_a_frozen_model_in_16_bits(tigon, tmp_path, write_tokens, precision):
    model = make("llama3", tmp_path / "model", torch.bfloat16)
    tokens = tokens_for(20)
    data = write_tokens(tokens.tolist(), VOCAB)
    train(
        tigon, tmp_path / "model", data, "--lora", "r=4", "--precision", precision, "--steps", 20, "--lr", 1e-2,
        "--schedule", "constant", "--log", tmp_path / "log", "--output", tmp_path / "out",
    )  # fmt: skip
    log = read_log(tmp_path / "log")
    assert log[0]["loss"] == pytest.approx(loss_of(model, *batch(tokens, 0)).item(), rel=1e-2)
    moved = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert all(v.float().norm() > 0 for k, v in moved.items() if "lora_B" in k)


def test_what_is_refused(tigon, tmp_path, write_tokens):
    model = make("llama3", tmp_path / "model")
    data = write_tokens(tokens_for(1).tolist(), VOCAB)
    adapted(model).save_pretrained(tmp_path / "adapters")
    config = tmp_path / "adapters" / "adapter_config.json"
    whole = json.loads(config.read_text())

    def said(**changes):
        config.write_text(json.dumps(whole | changes))
        result = tigon(
            "train", "--model", tmp_path / "model", "--data", data, "--batch", 1, "--seq", SEQ, "--steps", 1,
            "--adapters", tmp_path / "adapters", check=False,
        )  # fmt: skip
        assert result.returncode == 2, result.stdout + result.stderr
        return result.stderr

    assert "'use_dora'" in said(use_dora=True)
    assert "'bias'" in said(bias="all")
    assert "'init_lora_weights' is 'pissa_niter_4'" in said(init_lora_weights="pissa_niter_4")
    assert "'modules_to_save'" in said(modules_to_save=["lm_head"])
    for pattern in [{"layers.0.self_attn.q_proj": 8}, {"q_proj|v_proj": 8}, {"mlp.q_proj": 8}, {"q_proj": 0},
                    {"q_proj": 8, "self_attn.q_proj": 4}]:  # fmt: skip
        assert "'rank_pattern'" in said(rank_pattern=pattern)
        assert "'alpha_pattern'" in said(alpha_pattern=pattern)
    assert "does not fit" in said(rank_pattern={"self_attn.q_proj": 8})
    assert "'layers_to_transform'" in said(layers_to_transform=[0])
    assert "a pattern" in said(target_modules=".*proj")
    assert "'embed_tokens'" in said(target_modules=["embed_tokens"])
    assert "'invented'" in said(invented=1)
    assert "not LoRA" in said(peft_type="IA3")
    assert "'r'" in said(r=0)
    assert "does not fit" in said(r=8)
    config.write_text("{")
    for flags, word in [("r=0", "above 0"), ("r=1.5", "rank"), ("targets=head", "no such matrix"), ("dora", "DoRA"),
                        ("dropout=0.1", "dropout"), ("size=4", "not known")]:  # fmt: skip
        refused = tigon("plan", "--model", tmp_path / "model", "--lora", flags, check=False)
        assert refused.returncode == 2, flags
        assert word in refused.stderr, flags


def test_spoiled_adapters_are_not_merged(tigon, tmp_path):
    adapters = adapted(make("llama3", tmp_path / "model"))
    with torch.no_grad():
        next(p for name, p in adapters.named_parameters() if "k_proj.lora_A" in name)[0, 0] = float("nan")
    adapters.save_pretrained(tmp_path / "adapters")
    refused = tigon(
        "merge", "--model", tmp_path / "model", "--adapters", tmp_path / "adapters", "--output", tmp_path / "no",
        check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "k_proj.lora_A.weight' has values that are not finite" in refused.stderr


def test_the_plan_is_what_the_run_takes(tigon, tmp_path):
    for name in CONFIGS:
        if name.startswith("llama"):
            make(name, tmp_path / name)
            train_flags = ["--model", tmp_path / name, "--lora", "r=4", "--batch", 2, "--seq", 16]
            said = tigon("train", *train_flags, "--steps", 2, "--log", tmp_path / f"{name}.log").stdout
            end = read_log(tmp_path / f"{name}.log")[-1]
            assert end["planned_bytes"] == end["used_bytes"], said
