"""Losses, every gradient, and ten steps of training, against Hugging Face Transformers and torch.optim.AdamW."""

import json
import math

import pytest
import torch
from conftest import read_log
from families import CONFIGS, make
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

BATCH, SEQ, VOCAB = 3, 20, 96
IGNORED = 7  # a token whose labels do not count


def tokens_for(steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (steps * BATCH * SEQ + 1,), generator=generator)


def batch(tokens, step):
    """What --sequential hands to step `step`: windows of SEQ + 1 tokens that overlap by one."""
    rows = [tokens[(step * BATCH + b) * SEQ :][: SEQ + 1] for b in range(BATCH)]
    rows = torch.stack(rows)
    labels = rows[:, 1:].clone()
    labels[labels == IGNORED] = -100
    return rows[:, :-1], labels


def loss_of(model, ids, labels):
    logits = model(ids).logits.float()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100)


def relative(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm().clamp_min(1e-30)).item()


def train(tigon, folder, data, *flags):
    return tigon(
        "train", "--model", folder, "--data", data, "--batch", BATCH, "--seq", SEQ, "--sequential",
        "--ignore-token", IGNORED, *flags,
    )  # fmt: skip


def gradients_of(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


FORMS = {
    "fused": [],
    "unfused": ["--fused", "none"],
    "block": ["--recompute", "block"],
    "selective": ["--recompute", "selective"],
    "tiled": ["--mlp-tile", "7", "--recompute", "block"],
    "chunked": ["--chunk", "16"],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CONFIGS)
def test_loss_and_every_gradient(tigon, tmp_path, write_tokens, name, form):
    model = make(name, tmp_path / "model")
    tokens = tokens_for(1)
    data = write_tokens(tokens.tolist(), VOCAB)
    log, grads = tmp_path / "log", tmp_path / "grads.safetensors"
    train(tigon, tmp_path / "model", data, "--steps", 1, "--log", log, "--save-gradients", grads, *FORMS[form])

    ids, labels = batch(tokens, 0)
    loss = loss_of(model, ids, labels)
    loss.backward()
    expected = gradients_of(model)
    assert read_log(log)[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    ours = load_file(grads)
    assert set(ours) == set(expected)
    for key, theirs in expected.items():
        assert relative(ours[key], theirs) < 1e-5, key
    norm = torch.stack([g.norm() for g in expected.values()]).norm().item()
    assert read_log(log)[0]["grad_norm"] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_bf16_is_no_worse_than_transformers(tigon, tmp_path, write_tokens, name):
    model = make(name, tmp_path / "model", torch.bfloat16)  # the same rounded weights for all three
    tokens = tokens_for(1)
    data = write_tokens(tokens.tolist(), VOCAB)
    grads = tmp_path / "grads.safetensors"
    train(tigon, tmp_path / "model", data, "--steps", 1, "--precision", "bf16", "--save-gradients", grads)
    ids, labels = batch(tokens, 0)
    loss_of(model, ids, labels).backward()
    exact = gradients_of(model)
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.bfloat16)
    loss_of(half, ids, labels).backward()
    theirs = gradients_of(half)
    ours = load_file(grads)
    # Over all gradients together: single small ones scatter either way.
    error = lambda grads: torch.stack([(grads[k].float() - exact[k]).norm() for k in exact]).norm().item()  # noqa: E731
    assert error(ours) <= error(theirs) * 1.02


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_ten_steps_with_adamw(tigon, tmp_path, write_tokens, name, accumulate):
    model = make(name, tmp_path / "model")
    steps, lr = 10, 1e-3
    tokens = tokens_for(steps * accumulate)
    data = write_tokens(tokens.tolist(), VOCAB)
    log = tmp_path / "log"
    train(
        tigon, tmp_path / "model", data, "--steps", steps, "--lr", lr, "--warmup", 3, "--schedule", "cosine",
        "--lr-floor", 0.1, "--weight-decay", 0.1, "--clip", 0.7, "--accumulate", accumulate, "--log", log,
        "--output", tmp_path / "trained",
    )  # fmt: skip

    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)
    for step in range(1, steps + 1):
        done = (step - 3) / (steps - 3)
        factor = step / 3 if step <= 3 else 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = lr * factor
        optimizer.zero_grad()
        # The large batch at once: micro-batches with different numbers of counted tokens must add up to it.
        parts = [batch(tokens, (step - 1) * accumulate + i) for i in range(accumulate)]
        ids, labels = (torch.cat(t) for t in zip(*parts, strict=True))
        loss = loss_of(model, ids, labels)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
        optimizer.step()
        line = read_log(log)[step - 1]
        assert line["lr"] == pytest.approx(lr * factor, rel=1e-9)
        assert line["loss"] == pytest.approx(loss.item(), rel=1e-4), step
        assert line["grad_norm"] == pytest.approx(norm.item(), rel=1e-3), step

    # And back through transformers: the written folder is the trained model.
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "trained")
    assert trained.dtype == torch.float32
    for (key, ours), theirs in zip(trained.named_parameters(), model.parameters(), strict=True):
        # Keys' biases hardly matter to a softmax; AdamW makes steps of full size from their rounding errors.
        assert relative(ours, theirs) < (1e-3 if key.endswith("k_proj.bias") else 1e-4), key
    ids, labels = batch(tokens, 0)
    assert loss_of(trained, ids, labels).item() == pytest.approx(loss_of(model, ids, labels).item(), rel=1e-5)


# config.json as no Transformers writes it, but as it reads it: fields of two versions side by side.
EDITS = {
    "scaling-beside-parameters": ("llama3", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "scaling-and-theta": ("llama3.1", {"rope_scaling": {"type": "linear", "factor": 3.0}, "rope_theta": 2000.0}),
    "empty-scaling": ("llama3.1", {"rope_scaling": {}, "rope_theta": 2000.0}),
    "gemma-null-gelu": ("gemma", {"hidden_activation": None, "hidden_act": "gelu"}),
    "gemma-tanh-gelu": ("gemma", {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu"}),
    "gemma-gelu-tanh": ("gemma-erf", {"hidden_activation": "gelu", "hidden_act": "gelu_pytorch_tanh"}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_configs_of_two_versions(tigon, tmp_path, write_tokens, edit):
    name, fields = EDITS[edit]
    make(name, tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **fields}))
    tokens = tokens_for(1)
    log, grads = tmp_path / "log", tmp_path / "grads.safetensors"
    train(
        tigon, tmp_path / "model", write_tokens(tokens.tolist(), VOCAB), "--steps", 1, "--log", log,
        "--save-gradients", grads,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    loss = loss_of(model, *batch(tokens, 0))
    loss.backward()
    assert read_log(log)[0]["loss"] == pytest.approx(loss.item(), rel=1e-6)
    ours = load_file(grads)
    for key, theirs in gradients_of(model).items():
        assert relative(ours[key], theirs) < 1e-5, key


@pytest.mark.parametrize("tied", [True, False])
def test_the_pad_token_is_a_token_as_any_other(tigon, tmp_path, write_tokens, tied):
    """torch.nn.Embedding gives no gradient to padding_idx. Without that Transformers' gradients and norm are ours."""
    pad = 3
    config = tmp_path / "model" / "config.json"
    make("gemma" if tied else "gemma-erf", tmp_path / "model")
    config.write_text(json.dumps({**json.loads(config.read_text()), "pad_token_id": pad}))
    tokens = tokens_for(1)
    assert (tokens == pad).any()
    log, grads = tmp_path / "log", tmp_path / "grads.safetensors"
    train(
        tigon, tmp_path / "model", write_tokens(tokens.tolist(), VOCAB), "--steps", 1, "--log", log,
        "--save-gradients", grads,
    )  # fmt: skip
    ours = load_file(grads)
    key = "model.embed_tokens.weight"
    others = torch.arange(VOCAB) != pad
    for padding in (pad, None):
        model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
        assert model.model.embed_tokens.padding_idx == pad
        model.model.embed_tokens.padding_idx = padding
        loss_of(model, *batch(tokens, 0)).backward()
        theirs = gradients_of(model)
        assert relative(ours[key][others], theirs[key][others]) < 1e-5
        norm = torch.stack([g.norm() for g in theirs.values()]).norm().item()
        same = padding is None
        assert (relative(ours[key][pad], theirs[key][pad]) < 1e-5) == same
        assert (read_log(log)[0]["grad_norm"] == pytest.approx(norm, rel=1e-5)) == same


def test_sharded_folders_are_read(tigon, tmp_path, write_tokens):
    model = make("llama3", tmp_path / "one")
    model.save_pretrained(tmp_path / "model", max_shard_size="40KB")
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 1
    tokens = tokens_for(1)
    log = tmp_path / "log"
    train(tigon, tmp_path / "model", write_tokens(tokens.tolist(), VOCAB, width=4), "--steps", 1, "--log", log)
    assert read_log(log)[0]["loss"] == pytest.approx(loss_of(model, *batch(tokens, 0)).item(), rel=1e-5)


def test_weights_that_do_not_fit_are_refused(tigon, tmp_path, write_tokens):
    make("llama3", tmp_path / "a")
    make("qwen2", tmp_path / "b")
    (tmp_path / "a" / "model.safetensors").write_bytes((tmp_path / "b" / "model.safetensors").read_bytes())
    data = write_tokens(tokens_for(1).tolist(), VOCAB)
    result = tigon("train", "--model", tmp_path / "a", "--data", data, "--batch", 1, "--seq", 8, check=False)
    assert result.returncode == 2
    assert "q_proj" in result.stderr


def test_from_scratch_loads_in_transformers(tigon, tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"It is a truth universally acknowledged, that a single man " * 40)
    tigon("train", "--model", "llama-bytes-1m", "--data", text, "--steps", 2, "--batch", 2, "--seq", 32,
          "--output", tmp_path / "out", "--log", tmp_path / "log", "--sequential", "--lr", 0)  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    data = torch.tensor(list(text.read_bytes()))
    ids = torch.stack([data[b * 32 : b * 32 + 33] for b in range(2)])
    logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 256), ids[:, 1:].reshape(-1))
    assert read_log(tmp_path / "log")[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
