"""Tigon as the backend of the real liger_kernel, which by itself can only run on a GPU."""

import subprocess
import sys

import pytest
import tigon.liger
import torch
from tiny_models import batch, loss_and_gradients, tiny_model


def liger():
    try:
        import liger_kernel.backends
        import liger_kernel.transformers
    except ImportError as missing:
        pytest.skip(f"liger_kernel 0.8.5 or later with triton is not installed: {missing}")
    return liger_kernel


@pytest.fixture
def installed():
    package = liger()
    tigon.liger.install()
    yield package
    tigon.liger.uninstall()


@pytest.fixture
def patched_by_liger(installed, monkeypatch):
    """Liger cannot revert its patches."""
    from transformers.models.llama import modeling_llama

    for name in ("apply_rotary_pos_emb", "LlamaRMSNorm", "LlamaMLP"):
        monkeypatch.setattr(modeling_llama, name, getattr(modeling_llama, name))
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    return apply_liger_kernel_to_llama


def test_a_model_patched_by_liger_runs_on_our_kernels(patched_by_liger):
    model = tiny_model("llama", mlp_bias=False)
    expected, expected_gradients = loss_and_gradients(model, **batch())
    patched_by_liger(model=model)
    got, gradients = loss_and_gradients(model, **batch(), num_items_in_batch=None)
    assert got.logits is None
    torch.testing.assert_close(got.loss, expected.loss, rtol=2e-6, atol=1e-6)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())


def test_modules_and_functions(installed):
    from liger_kernel.transformers import LigerCrossEntropyLoss, LigerLayerNorm, LigerRMSNorm
    from liger_kernel.transformers.functional import liger_geglu, liger_rope, liger_swiglu

    x, y = torch.randn(3, 16), torch.randn(3, 16)
    torch.testing.assert_close(LigerRMSNorm(16)(x), torch.nn.functional.rms_norm(x, (16,), eps=1e-6))
    torch.testing.assert_close(LigerLayerNorm(16)(x), torch.nn.functional.layer_norm(x, (16,), eps=1e-6))
    torch.testing.assert_close(liger_swiglu(x, y), torch.nn.functional.silu(x) * y)
    torch.testing.assert_close(liger_geglu(x, y), torch.nn.functional.gelu(x, approximate="tanh") * y)
    target = torch.tensor([3, -100, 7])
    torch.testing.assert_close(LigerCrossEntropyLoss()(x, target), torch.nn.functional.cross_entropy(x, target))
    q, k, angle = torch.randn(1, 2, 5, 8), torch.randn(1, 1, 5, 8), torch.randn(1, 5, 4).repeat(1, 1, 2)
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    torch.testing.assert_close(
        liger_rope(q, k, angle.cos(), angle.sin()), apply_rotary_pos_emb(q, k, angle.cos(), angle.sin())
    )


def test_fused_loss_modules(installed):
    from liger_kernel.transformers import LigerFusedAddRMSNorm, LigerFusedLinearCrossEntropyLoss

    x, weight, target = torch.randn(6, 8), torch.randn(11, 8), torch.tensor([1, 2, -100, 10, 0, 3])
    result = LigerFusedLinearCrossEntropyLoss(return_z_loss=True, lse_square_scale=1e-2)(weight, x, target)
    logits = x @ weight.T
    z_loss = 1e-2 * logits.logsumexp(-1)[target != -100].square().mean()
    torch.testing.assert_close(result.z_loss, z_loss)
    torch.testing.assert_close(result.loss, torch.nn.functional.cross_entropy(logits, target) + z_loss)
    y, total = LigerFusedAddRMSNorm(8)(x, 2 * x)
    torch.testing.assert_close(total, 3 * x)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(3 * x, (8,), eps=1e-6))


def test_the_dispatcher_prefers_ours(installed):
    from liger_kernel.backends import available_impls, resolve_impl

    for op in ("rms_norm", "layer_norm", "swiglu", "geglu", "rope", "cross_entropy", "fused_linear_cross_entropy"):
        assert available_impls(op)[0] == "tigon"
        assert resolve_impl(op).impl_name == "tigon"


def test_uninstalling_and_installing_twice():
    liger()
    import liger_kernel.ops
    import liger_kernel.transformers.rms_norm as module
    from liger_kernel.backends import all_impls

    before = module.LigerRMSNormFunction
    tigon.liger.uninstall()
    tigon.liger.install()
    tigon.liger.install()
    assert module.LigerRMSNormFunction is liger_kernel.ops.LigerRMSNormFunction is not before
    assert tigon.liger.installed()
    tigon.liger.uninstall()
    assert module.LigerRMSNormFunction is liger_kernel.ops.LigerRMSNormFunction is before
    assert "tigon" not in all_impls("rms_norm")
    assert not tigon.liger.installed()


def test_installing_before_anything_of_liger_is_imported():
    liger()
    program = (
        "import torch, tigon.liger; tigon.liger.install();"
        "from liger_kernel.transformers import LigerSwiGLUMLP, LigerRMSNorm;"
        "from transformers import LlamaConfig;"
        "c = LlamaConfig(hidden_size=8, intermediate_size=12, num_attention_heads=1);"
        "LigerRMSNorm(8)(LigerSwiGLUMLP(c)(torch.randn(2, 8))).sum().backward()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_liger_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    monkeypatch.setitem(sys.modules, "liger_kernel.backends.registry", None)
    with pytest.raises(ImportError, match="liger"):
        tigon.liger.install()
