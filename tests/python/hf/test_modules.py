"""The modules against PyTorch's, and their arguments against Liger's."""

import inspect
from types import SimpleNamespace

import pytest
import tigon.transformers as tt
import torch
from tigon.transformers import functional
from torch import nn

CONFIG = SimpleNamespace(hidden_size=8, intermediate_size=12, hidden_act="silu")


def x(*shape, device="cpu"):
    return torch.randn(*shape, device=device, requires_grad=True)


def test_rms_norm(device):
    module, values = tt.TigonRMSNorm(8, eps=1e-5).to(device), x(3, 8, device=device)
    torch.testing.assert_close(module(values), nn.functional.rms_norm(values, (8,), eps=1e-5))
    module(values).sum().backward()
    assert module.weight.grad is not None
    assert "eps=1e-05" in repr(module)


def test_rms_norm_variants():
    values = x(3, 8)
    plain = nn.functional.rms_norm(values, (8,), eps=1e-6)
    torch.testing.assert_close(tt.TigonRMSNorm(8, offset=1.0, init_fn="zeros")(values), plain)
    torch.testing.assert_close(tt.TigonRMSNorm(8, elementwise_affine=False)(values), plain)
    with pytest.raises(ValueError, match="'ones' or 'zeros'"):
        tt.TigonRMSNorm(8, init_fn="twos")


def test_fused_add_rms_norm():
    a, b = x(3, 8), x(3, 8)
    y, total = tt.TigonFusedAddRMSNorm(8)(a, b)
    torch.testing.assert_close(total, a + b)
    torch.testing.assert_close(y, nn.functional.rms_norm(a + b, (8,), eps=1e-6))


def test_layer_norm():
    module, values = tt.TigonLayerNorm(8, bias=True), x(3, 8)
    expected = nn.functional.layer_norm(values, (8,), module.weight, module.bias, 1e-6)
    torch.testing.assert_close(module(values), expected)


def test_swiglu_mlp():
    module, values = tt.TigonSwiGLUMLP(CONFIG), x(3, 8)
    expected = module.down_proj(nn.functional.silu(module.gate_proj(values)) * module.up_proj(values))
    torch.testing.assert_close(module(values), expected)
    assert tt.TigonSwiGLUMLP(CONFIG, intermediate_size=4).up_proj.out_features == 4
    with pytest.raises(ValueError, match=r"'relu'.*'silu' or 'swish'"):
        tt.TigonSwiGLUMLP(SimpleNamespace(**{**vars(CONFIG), "hidden_act": "relu"}))


@pytest.mark.parametrize(("activation", "form"), [("gelu_pytorch_tanh", "tanh"), ("gelu", "none")])
def test_geglu_mlp(activation, form):
    module = tt.TigonGEGLUMLP(SimpleNamespace(**{**vars(CONFIG), "hidden_act": activation}))
    values = 3 * x(3, 8)
    expected = module.down_proj(nn.functional.gelu(module.gate_proj(values), approximate=form) * module.up_proj(values))
    torch.testing.assert_close(module(values), expected, rtol=1e-5, atol=1e-6)


def test_rope_with_every_angle_once():
    q, k, angle = x(1, 2, 3, 8), x(1, 1, 3, 8), torch.randn(1, 3, 4)
    twice = angle.repeat(1, 1, 2)
    expected = tt.tigon_rotary_pos_emb(q, k, twice.cos(), twice.sin())
    torch.testing.assert_close(tt.tigon_rotary_pos_emb(q, k, angle.cos(), angle.sin(), rotary_dim=8), expected)
    with pytest.raises(ValueError, match="rotary_dim is 6 but cos has width 4"):
        tt.tigon_rotary_pos_emb(q, k, angle.cos(), angle.sin(), rotary_dim=6)


def test_losses():
    hidden, weight, target = x(5, 8), x(11, 8), torch.tensor([1, -100, 3, 10, 0])
    logits = hidden @ weight.T
    expected = nn.functional.cross_entropy(logits, target, label_smoothing=0.1)
    torch.testing.assert_close(tt.TigonCrossEntropyLoss(label_smoothing=0.1)(logits, target), expected)
    fused = tt.TigonFusedLinearCrossEntropyLoss(label_smoothing=0.1)
    torch.testing.assert_close(fused(weight, hidden, target), expected)
    more = tt.TigonFusedLinearCrossEntropyLoss(return_token_accuracy=True)(weight, hidden, target)
    assert 0 <= more.token_accuracy <= 1
    assert more.z_loss is None
    torch.testing.assert_close(functional.tigon_cross_entropy(logits, target, label_smoothing=0.1), expected)
    with pytest.raises(ValueError, match="reduction"):
        functional.tigon_cross_entropy(logits, target, size_average=True)


def arguments(function):
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]


NOT_OURS = {"impl", "mode", "backend"}  # which of Liger's kernels to use


@pytest.mark.parametrize(
    "name",
    [
        "LigerRMSNorm",
        "LigerFusedAddRMSNorm",
        "LigerLayerNorm",
        "LigerSwiGLUMLP",
        "LigerGEGLUMLP",
        "LigerCrossEntropyLoss",
        "LigerFusedLinearCrossEntropyLoss",
        "liger_rotary_pos_emb",
        *(f"apply_liger_kernel_to_{family}" for family in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "phi3")),
        *(f"apply_liger_kernel_to_{family}" for family in ("gemma", "gemma2", "gemma3_text", "olmo2")),
    ],
)
def test_a_search_and_replace_is_all_it_takes(name):
    liger = pytest.importorskip("liger_kernel.transformers")
    ours = name.replace("liger_kernel", "tigon").replace("Liger", "Tigon").replace("liger_", "tigon_")
    theirs = [pair for pair in arguments(getattr(liger, name)) if pair[0] not in NOT_OURS]
    assert arguments(getattr(tt, ours))[: len(theirs)] == theirs
    if inspect.isclass(getattr(tt, ours)):
        forward = [n for n, _ in arguments(getattr(liger, name).forward)]
        assert [n for n, _ in arguments(getattr(tt, ours).forward)] == forward


@pytest.mark.parametrize(
    "name",
    [
        "cross_entropy",
        "fused_linear_cross_entropy",
        "fused_add_rms_norm",
        "geglu",
        "layer_norm",
        "rms_norm",
        "rope",
        "swiglu",
    ],
)
def test_functions_take_ligers_arguments(name):
    liger = pytest.importorskip("liger_kernel.transformers.functional")
    theirs = arguments(getattr(liger, f"liger_{name}"))
    assert arguments(getattr(functional, f"tigon_{name}"))[: len(theirs)] == theirs
