"""APOLLO and GaLore against their authors' packages, step by step, with the same projections."""

import apollo_torch.apollo
import galore_torch.adamw
import pytest
import torch
from conftest import read_log
from families import make
from galore_torch.galore_projector import GaLoreProjector
from philox import normal
from safetensors.torch import load_file
from test_against_transformers import BATCH, SEQ, VOCAB, batch, loss_of, relative, tokens_for, train
from transformers import AutoModelForCausalLM

SEED, RANK, GAP, STEPS, LR, CLIP = 5, 7, 4, 10, 3e-3, 0.7
PROJECTIONS = 0x4150_4F4C_4C4F_0001  # src/train/low_rank.cpp
KINDS = {
    "apollo": ["--rank", RANK, "--scale", 2],
    "apollo-mini": ["--scale", 64],
}


def place_of(name, model):
    """The parameter of the program that a matrix is in, and the first of its rows there."""
    _, _, layer, _, module, _ = name.split(".")
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    q, kv = head * config.num_attention_heads, head * config.num_key_value_heads
    # A layer is norm1, qkv, o, norm2, gate_up, down.
    index, row = {
        "q_proj": (1, 0),
        "k_proj": (1, q),
        "v_proj": (1, q + kv),
        "o_proj": (2, 0),
        "gate_proj": (4, 0),
        "up_proj": (4, config.intermediate_size),
        "down_proj": (5, 0),
    }[module]
    return 1 + 6 * int(layer) + index, row


def inject(optimizer, model, rank):
    """Has apollo-torch project by what the program draws."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        tensor, row = place_of(names[parameter], model)
        first = row * parameter.shape[1]
        drawn = []

        def draw(weights, rank, type, seed, tensor=tensor, first=first, drawn=drawn):
            shape = (weights.shape[0], rank) if type == "left" else (rank, weights.shape[1])
            values = normal(SEED ^ PROJECTIONS, len(drawn), tensor, first, shape[0] * shape[1])
            drawn.append(shape)
            return torch.tensor(values.reshape(shape) / rank**0.5, dtype=torch.float32)

        group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
        state["projector"] = optimizer._initialize_projector(group, state)
        state["projector"].get_orthogonal_matrix = draw


@pytest.mark.parametrize("name", ["llama3", "llama3.2"])
@pytest.mark.parametrize("kind", KINDS)
def test_ten_steps_of_apollo(tigon, tmp_path, write_tokens, kind, name):
    model = make(name, tmp_path / "model")
    tokens = tokens_for(STEPS)
    log = tmp_path / "log"
    train(
        tigon, tmp_path / "model", write_tokens(tokens.tolist(), VOCAB), "--steps", STEPS, "--lr", LR, "--seed", SEED,
        "--schedule", "constant", "--weight-decay", 0.1, "--clip", CLIP, "--log", log, "--output", tmp_path / "trained",
        "--optimizer", kind, "--gap", GAP, *KINDS[kind],
    )  # fmt: skip

    rank = RANK if kind == "apollo" else 1
    named = dict(model.named_parameters())
    matrices = [p for key, p in named.items() if "_proj." in key]
    others = [p for key, p in named.items() if "_proj." not in key and p.dim() > 1]
    vectors = [p for p in named.values() if p.dim() == 1]
    low_rank = apollo_torch.apollo.AdamW(
        [
            {
                "params": matrices,
                "rank": rank,
                "proj": "random",
                "proj_type": "std",
                "update_proj_gap": GAP,
                "scale": KINDS[kind][-1],
                "scale_type": "channel" if kind == "apollo" else "tensor",
            }
        ],
        lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1,
    )  # fmt: skip
    inject(low_rank, model, rank)
    groups = [{"params": others, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    for step in range(STEPS):
        model.zero_grad()
        loss = loss_of(model, *batch(tokens, step))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        low_rank.step()
        adamw.step()
        line = read_log(log)[step]
        assert line["loss"] == pytest.approx(loss.item(), rel=1e-4), step
        assert line["grad_norm"] == pytest.approx(norm.item(), rel=1e-3), step
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "trained")
    for (key, ours), theirs in zip(trained.named_parameters(), model.parameters(), strict=True):
        assert relative(ours, theirs) < 1e-4, key


def test_ten_steps_of_galore(tigon, tmp_path, write_tokens):
    """galore-torch, projecting by what the run keeps; and that against the singular vectors that it takes itself."""
    model = make("llama3", tmp_path / "model")
    tokens = tokens_for(STEPS)
    data = write_tokens(tokens.tolist(), VOCAB)
    log, grads = tmp_path / "log", tmp_path / "grads.safetensors"
    flags = (
        "--lr", LR, "--seed", SEED, "--schedule", "constant", "--weight-decay", 0.1, "--clip", CLIP,
        "--optimizer", "galore", "--rank", RANK, "--gap", 100, "--scale", 0.5,
    )  # fmt: skip
    train(tigon, tmp_path / "model", data, "--steps", 1, "--save-gradients", grads, *flags)
    train(
        tigon, tmp_path / "model", data, "--steps", STEPS, "--log", log, "--output", tmp_path / "trained",
        "--checkpoints", tmp_path / "run", *flags,
    )  # fmt: skip
    states = load_file(next((tmp_path / "run").glob("step-*")) / "state.safetensors")

    named = dict(model.named_parameters())
    matrices = {key: p for key, p in named.items() if "_proj." in key}
    others = [p for key, p in named.items() if "_proj." not in key and p.dim() > 1]
    vectors = [p for p in named.values() if p.dim() == 1]
    group = {"rank": RANK, "update_proj_gap": 100, "scale": 0.5, "proj_type": "std"}
    galore = galore_torch.adamw.AdamW(
        [{"params": list(matrices.values()), **group}],
        lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, no_deprecation_warning=True,
    )  # fmt: skip
    first = load_file(grads)
    for key, parameter in matrices.items():
        projection = projection_of(states, key, model)
        rows, columns = parameter.shape
        # As much of the gradient as the singular vectors keep.
        gradient = first[key] if rows >= columns else first[key].t()
        best = torch.linalg.svdvals(gradient)[:RANK].square().sum()
        assert (gradient @ projection.t()).square().sum() > 0.98 * best, key
        projector = GaLoreProjector(RANK, update_proj_gap=100, scale=0.5, proj_type="std")
        projector.get_orthogonal_matrix = lambda *_, p=projection, tall=rows >= columns, **__: p if tall else p.t()
        galore.state[parameter]["projector"] = projector
    groups = [{"params": others, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    for step in range(STEPS):
        model.zero_grad()
        loss = loss_of(model, *batch(tokens, step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        galore.step()
        adamw.step()
        assert read_log(log)[step]["loss"] == pytest.approx(loss.item(), rel=1e-4), step
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "trained")
    for (key, ours), theirs in zip(trained.named_parameters(), model.parameters(), strict=True):
        assert relative(ours, theirs) < 1e-3, key


def projection_of(states, key, model):
    """The rows of a state that belong to one matrix of a file: [rank, shorter side]."""
    places = {0: "norm1", 1: "qkv", 2: "o", 4: "gate_up", 5: "down"}
    index, _ = place_of(key, model)
    layer, place = divmod(index - 1, 6)
    beside = [
        other for other in dict(model.named_parameters()) if "_proj." in other and place_of(other, model)[0] == index
    ]
    beside.sort(key=lambda other: place_of(other, model)[1])
    shapes = [model.get_parameter(other).shape for other in beside]
    parts = states[f"layers.{layer}.{places[place]}.projection"].split([min(shape) * RANK for shape in shapes])
    return parts[beside.index(key)].reshape(RANK, -1)


def test_galore_learns_as_with_singular_vectors(tigon, tmp_path, write_tokens):
    """Each with its own projection, refreshed several times: other vectors of nearly the same spaces."""
    model = make("llama3", tmp_path / "model")
    steps, gap, lr = 40, 8, 1e-2
    tokens = tokens_for(1).repeat(steps + 1)[: steps * BATCH * SEQ + 1]  # one batch, learnt by heart
    log = tmp_path / "log"
    train(
        tigon, tmp_path / "model", write_tokens(tokens.tolist(), VOCAB), "--steps", steps, "--lr", lr, "--log", log,
        "--schedule", "constant", "--weight-decay", 0, "--clip", 0, "--optimizer", "galore", "--rank", 12, "--gap", gap,
    )  # fmt: skip
    named = dict(model.named_parameters())
    group = {"rank": 12, "update_proj_gap": gap, "scale": 0.25, "proj_type": "std"}
    optimizer = galore_torch.adamw.AdamW(
        [
            {"params": [p for key, p in named.items() if "_proj." in key], **group},
            {"params": [p for key, p in named.items() if "_proj." not in key]},
        ],
        lr=lr, betas=(0.9, 0.95), eps=1e-8, no_deprecation_warning=True,
    )  # fmt: skip
    theirs = []
    for step in range(steps):
        model.zero_grad()
        loss = loss_of(model, *batch(tokens, step))
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    ours = [line["loss"] for line in read_log(log)[:steps]]
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    assert theirs[-1] < 0.5 * theirs[0]
    assert sum(ours[-5:]) == pytest.approx(sum(theirs[-5:]), rel=0.15)
