"""Gated MLPs whose last projection runs in one op with the activation: when it may, and what others can see of it."""

import copy

import pytest
import tigon
import tigon.transformers as tt
import torch
from tiny_models import assert_same, batch, loss_and_gradients, tiny_model
from torch import nn


@pytest.fixture
def fused(monkeypatch):
    """How often the op ran."""
    calls, op = [], tigon.ops.swiglu_linear
    monkeypatch.setattr(tigon.ops, "swiglu_linear", lambda *args: calls.append(1) or op(*args))
    return calls


def both(family, **changes):
    model = tiny_model(family, mlp_bias=False, **changes)
    patched = copy.deepcopy(model)
    tt.apply_tigon(patched)
    return model, patched


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_gradient_checkpointing(family, reentrant, fused):
    model, patched = both(family)
    for m in (model, patched):
        m.gradient_checkpointing_enable({"use_reentrant": reentrant})
        m.enable_input_require_grads()  # reentrant checkpoints need it
    assert_same(model, patched)
    assert len(fused) == 2 * model.config.num_hidden_layers  # forward and recomputation


def test_frozen_projections(fused):
    model, patched = both("llama")
    for m in (model, patched):
        for name, parameter in m.named_parameters():
            parameter.requires_grad_("down_proj" not in name and "layers.0.mlp" not in name)
    assert_same(model, patched)
    assert fused


def test_autocast(fused):
    model, patched = both("llama")
    with torch.autocast("cpu", torch.bfloat16):
        (want, _), (got, gradients) = (loss_and_gradients(m, **batch()) for m in (model, patched))
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-2, atol=1e-2)
    assert gradients["model.layers.0.mlp.down_proj.weight"].dtype == torch.float32
    assert fused


def counting_hook(calls):
    return lambda *_: calls.append(1) and None


HOOKS = {
    "forward": lambda layer, hook: layer.register_forward_hook(hook),
    "forward pre": lambda layer, hook: layer.register_forward_pre_hook(hook),
    "backward": lambda layer, hook: layer.register_full_backward_hook(hook),
    "backward pre": lambda layer, hook: layer.register_full_backward_pre_hook(hook),
    "of all modules": lambda _, hook: nn.modules.module.register_module_forward_hook(hook),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_of_the_projection_run(kind, fused):
    model, patched = both("llama")
    calls = []
    handles = [HOOKS[kind](layer.mlp.down_proj, counting_hook(calls)) for layer in patched.model.layers]
    try:
        assert_same(model, patched)
    finally:
        for handle in handles:
            handle.remove()
    assert not fused
    assert len(calls) >= len(handles)
    assert_same(model, patched)
    assert len(fused) == len(handles)


@pytest.mark.parametrize("family", ["llama", "phi3", "gemma", "mixtral"])
def test_hooks_of_the_activation_run(family):
    """They may change what it gives, as those that make activations sparse do."""
    model, patched = both(family)
    for m in (model, patched):
        for module in m.modules():
            if hasattr(module, "act_fn") or hasattr(module, "activation_fn"):
                activation = getattr(module, "act_fn", None) or module.activation_fn
                activation.register_forward_hook(lambda _, inputs, output: output * (output.abs() > 0.05))
    unhooked, _ = loss_and_gradients(both(family)[1], **batch())
    assert_same(model, patched)
    assert patched(**batch()).loss != unhooked.loss


def test_a_projection_of_another_kind(fused):
    class Doubling(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model, patched = both("llama")
    for m in (model, patched):
        for layer in m.model.layers:
            layer.mlp.down_proj.__class__ = Doubling
    assert_same(model, patched)
    for m in (model, patched):
        for layer in m.model.layers:
            linear = layer.mlp.down_proj
            linear.__class__ = nn.Linear
            linear.forward = lambda x, linear=linear: 2 * nn.functional.linear(x, linear.weight)
    assert_same(model, patched)
    assert not fused


def test_hooks_before_may_keep_what_they_see(fused):
    _, patched = both("llama")
    seen = []
    mlp = patched.model.layers[0].mlp
    for layer in (mlp.gate_proj, mlp.up_proj):
        layer.register_forward_hook(lambda module, inputs, output: seen.append((output, output.detach().clone())))
    loss_and_gradients(patched, **batch())
    assert fused
    assert len(seen) == 2
    assert all(torch.equal(kept, before) for kept, before in seen)


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_compiles_whole(family):
    model, patched = both(family)
    torch._dynamo.reset()
    mlp, x = patched.model.layers[0].mlp, torch.randn(2, 5, 32)
    compiled = torch.compile(mlp.forward, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model.model.layers[0].mlp(x))
