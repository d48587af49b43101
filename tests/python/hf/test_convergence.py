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
    model = LlamaForCausalLM(config).to(device, dtype).train()
    if patched:
        tt.apply_tigon(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 if dtype == torch.float32 else 1e-4)
    losses = []
    for ids in text():
        output = model(input_ids=ids.to(device), labels=ids.to(device))
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(output.loss.detach())
    return torch.stack(losses), dict(model.named_parameters())


@pytest.mark.parametrize(
    ("dtype", "loss_tolerance", "parameter_tolerance"),
    [
        (torch.float32, {"rtol": 2e-5, "atol": 0}, {"rtol": 1e-5, "atol": 5e-3}),
        # Those of Liger's own convergence test in bf16.
        (torch.bfloat16, {"rtol": 1e-2, "atol": 1e-3}, {"rtol": 1e-2, "atol": 1e-2}),
    ],
    ids=["f32", "bf16"],
)
def test_patched_training_is_the_same_training(device, dtype, loss_tolerance, parameter_tolerance):
    expected_losses, expected = train(device, dtype, patched=False)
    losses, parameters = train(device, dtype, patched=True)
    assert losses[-1] < losses[0] - (1 if dtype == torch.float32 else 0.05)  # it learns
    torch.testing.assert_close(losses, expected_losses, **loss_tolerance)
    for name, parameter in expected.items():
        torch.testing.assert_close(parameters[name], parameter, **parameter_tolerance)
