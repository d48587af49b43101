"""8-bit states of tigon.optim.AdamW against torchao's AdamW8bit, which has bitsandbytes' table and blocks as well."""

import pytest
import tigon
import torch
from two_layers import OPTIONS, gradients_of, make_weights

torchao = pytest.importorskip("torchao.optim")  # ./scripts/test installs it

INNER, OUTPUTS = 128, 64  # torchao codes what is made of whole blocks alone
STATES = ("exp_avg", "exp_avg_sq")


@pytest.fixture(autouse=True)
def uncompiled():
    """torchao compiles every step, which takes longer than all of this."""
    with torch.compiler.set_stance("force_eager"):
        yield


def learn(optimizer, parameters, step):
    loss, gradients = gradients_of(parameters, step)
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g.to(p.dtype)
    optimizer.step()
    return loss


def twice(dtype=torch.float32):
    weights = make_weights(INNER, OUTPUTS)
    return [[torch.nn.Parameter(w.to(dtype, copy=True)) for w in weights] for _ in range(2)]


def test_step_by_step():
    """Each of ten steps from the same states: every code, scale and weight."""
    ours, theirs = twice()
    optimizer, expected = tigon.optim.AdamW(ours, state="int8", **OPTIONS), torchao.AdamW8bit(theirs, **OPTIONS)
    for step in range(10):
        learn(optimizer, ours, step)
        for p, q in zip(ours, theirs, strict=True):
            q.grad = p.grad.clone()
        expected.step()
        for p, q in zip(ours, theirs, strict=True):
            torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-6, atol=1e-7)
            for name in STATES:
                codes, scales = optimizer.state[p][name], optimizer.state[p][name + "_scale"]
                state = expected.state[q][name]
                torch.testing.assert_close(scales, state.scale, rtol=1e-6, atol=0)
                # It takes the upper of two that are equally near, and divides by the scale where we multiply.
                difference = (codes.int() - state.codes.int()).abs()
                assert difference.max() <= 1
                assert difference.sum() <= codes.numel() // 2000, (step, name)
                state.codes.copy_(codes)
                state.scale.copy_(scales)
            with torch.no_grad():
                q.copy_(p)


def test_ten_steps_on_their_own():
    ours, theirs = twice()
    optimizer, expected = tigon.optim.AdamW(ours, state="int8", **OPTIONS), torchao.AdamW8bit(theirs, **OPTIONS)
    for step in range(10):
        assert learn(optimizer, ours, step) == pytest.approx(learn(expected, theirs, step), rel=1e-4)
    for p, q in zip(ours, theirs, strict=True):
        assert (p.detach() - q.detach()).abs().mean() < 1e-6


def test_rounded_by_chance_the_mean_is_the_same():
    """bf16 weights without a copy in f32, whose updates are smaller than a step of bf16."""
    ends = {}
    options = OPTIONS | {"lr": 1e-4, "weight_decay": 0.0}
    gradient = torch.ones(256, 256, dtype=torch.bfloat16)
    for name, make in {
        "ours": lambda p: tigon.optim.AdamW([p], state="int8", stochastic_rounding=True, **options),
        "theirs": lambda p: torchao.AdamW8bit([p], bf16_stochastic_round=True, **options),
    }.items():
        p = torch.nn.Parameter(torch.ones(256, 256, dtype=torch.bfloat16))
        optimizer = make(p)
        for _ in range(10):
            p.grad = gradient.clone()
            optimizer.step()
        ends[name] = p.detach().double().mean().item()
    # Ten steps of lr; one of bf16 below 1 is 2^-8, so the mean of 65536 has a deviation of about 8e-6.
    assert ends["ours"] == pytest.approx(1 - 1e-3, abs=5e-5)
    assert ends["theirs"] == pytest.approx(ends["ours"], abs=5e-5)
