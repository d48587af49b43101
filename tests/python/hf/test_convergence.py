"""A small Llama trained for 32 steps, patched and unpatched: the same losses and the same parameters at the end."""

import pytest
import tigon.transformers as tt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, ROWS, LENGTH, VOCAB = 32, 8, 64, 512


def text():
    """Batches with something to learn: each token is mostly decided by the one before it."""
    generator = torch.Generator().manual_seed(5)
    following = torch.randperm(VOCAB, generator=generator)
    for _ in range(STEPS):
        tokens = [torch.randint(0, VOCAB, (ROWS,), generator=generator)]
        for _ in range(LENGTH - 1):
            surprise = torch.rand(ROWS, generator=generator) < 0.1
            other = torch.randint(0, VOCAB, (ROWS,), generator=generator)
            tokens.append(torch.where(surprise, other, following[tokens[-1]]))
        yield torch.stack(tokens, dim=1)


def train(device, dtype, patched):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.fill_(0.25)  # from 1 a step of 1e-3 leads nowhere in bf16
    model.to(device, dtype).train()
    first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    if patched:
        tt.apply_tigon(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for ids in text():
        output = model(input_ids=ids.to(device), labels=ids.to(device))
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(output.loss.detach())
    moved = {name: (parameter.detach() - first[name]).double() for name, parameter in model.named_parameters()}
    return torch.stack(losses), moved


# Against what training moves: the loss falls by a seventh, and a parameter is held to a share of its own way.
@pytest.mark.parametrize(
    ("dtype", "loss_tolerance", "share"),
    [(torch.float32, 2e-5, 1e-3), (torch.bfloat16, 2e-3, 0.25)],
    ids=["f32", "bf16"],
)
def test_patched_training_is_the_same_training(device, dtype, loss_tolerance, share):
    expected_losses, expected = train(device, dtype, patched=False)
    losses, moved = train(device, dtype, patched=True)
    assert losses[-1] < losses[0] - 0.8  # it learns
    torch.testing.assert_close(losses, expected_losses, rtol=loss_tolerance, atol=0)
    for name, way in expected.items():
        assert way.norm() > 0, name
        assert (moved[name] - way).norm() <= share * way.norm(), name
