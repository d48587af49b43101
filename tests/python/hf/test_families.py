"""Every family, patched, against the unpatched model: logits, loss and all gradients."""

import copy

import pytest
import tigon
import tigon.transformers as tt
import torch
from tigon.transformers._families import FAMILIES
from tiny_models import CONFIGS, batch, loss_and_gradients, tiny_model

TIGHT = {"rtol": 2e-4, "atol": 2e-6}


def compare(model, patched, **inputs):
    expected, expected_gradients = loss_and_gradients(model, **inputs)
    got, got_gradients = loss_and_gradients(patched, **inputs)
    torch.testing.assert_close(got.loss, expected.loss, rtol=2e-6, atol=1e-6)
    assert got_gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(
            got_gradients[name], gradient, rtol=1e-4, atol=1e-5 * scale, msg=lambda m, name=name: f"{name}: {m}"
        )
    return expected, got


def test_the_table_and_the_tests_have_the_same_families():
    assert set(CONFIGS) == {family.model_type for family in FAMILIES}


@pytest.mark.parametrize("family", CONFIGS)
def test_one_model_patched(family, device):
    model = tiny_model(family, device)
    patched = copy.deepcopy(model)
    tt.apply_tigon(patched)
    expected, got = compare(model, patched, **batch(device))
    assert got.logits is None
    if family == "mixtral":
        torch.testing.assert_close(got.aux_loss, expected.aux_loss)
    patched.eval(), model.eval()
    with torch.no_grad():
        torch.testing.assert_close(patched(**batch(device)).logits, model(**batch(device)).logits, **TIGHT)


@pytest.mark.parametrize("family", CONFIGS)
def test_all_models_of_a_family_patched(family, device):
    model = tiny_model(family, device)
    expected, expected_gradients = loss_and_gradients(model, **batch(device))
    tt.apply_tigon_to_type(family)
    patched = tiny_model(family, device)
    for m in (model, patched):  # those that exist as well as those to come
        got, got_gradients = loss_and_gradients(m, **batch(device))
        assert got.logits is None
        torch.testing.assert_close(got.loss, expected.loss, rtol=2e-6, atol=1e-6)
        for name, gradient in expected_gradients.items():
            torch.testing.assert_close(
                got_gradients[name], gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item()
            )


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("switch", ["rope", "rms_norm", "mlp", "cross_entropy", "fused_linear_cross_entropy"])
def test_each_switch_alone(family, switch):
    model = tiny_model(family)
    patched = copy.deepcopy(model)
    gate = "geglu" if family.startswith("gemma") else "swiglu"
    switches = dict.fromkeys(["rope", "rms_norm", gate, "cross_entropy", "fused_linear_cross_entropy"], False)
    switches[gate if switch == "mlp" else switch] = True
    tt.apply_tigon(patched, **switches)
    _, got = compare(model, patched, **batch())
    assert (got.logits is None) == (switch == "fused_linear_cross_entropy")


@pytest.mark.parametrize("family", CONFIGS)
def test_bf16(family):
    """Both versions round in bf16; neither may be further from f32 than the other by much."""
    exact, _ = loss_and_gradients(tiny_model(family), **batch())
    model = tiny_model(family, dtype=torch.bfloat16)
    expected, _ = loss_and_gradients(model, **batch())
    tt.apply_tigon(model)
    got, _ = loss_and_gradients(model, **batch())
    allowed = 2 * (expected.loss - exact.loss).abs() + 0.01 * exact.loss
    assert (got.loss - exact.loss).abs() <= allowed


OPS = ("rope", "rms_norm", "swiglu", "geglu", "swiglu_linear", "geglu_linear", "cross_entropy", "linear_cross_entropy")


@pytest.fixture
def calls(monkeypatch):
    """How often each op was called."""
    counted = dict.fromkeys(OPS, 0)

    def counting(name, op):
        def count(*args, **kwargs):
            counted[name] += 1
            return op(*args, **kwargs)

        return count

    for name in OPS:
        monkeypatch.setattr(tigon.ops, name, counting(name, getattr(tigon.ops, name)))
    return counted


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("whole_class", [False, True], ids=["model", "class"])
def test_every_layer_uses_its_op(family, whole_class, calls):
    model = tiny_model(family)
    layers = model.config.num_hidden_layers
    norms = sum(type(module).__name__.endswith("RMSNorm") for module in model.modules())
    if whole_class:
        tt.apply_tigon_to_type(family)
    else:
        tt.apply_tigon(model)
    calls.update(dict.fromkeys(OPS, 0))  # the checks of the layout called some
    model(**batch())
    gate = "geglu" if family.startswith("gemma") else "swiglu"
    if family != "mixtral" and not getattr(model.config, "mlp_bias", False):
        gate += "_linear"  # with the projection after it, which is not Mixtral's own and has no bias elsewhere
    expected = {"rope": layers, "rms_norm": norms, gate: layers, "linear_cross_entropy": 1}
    assert calls == {**dict.fromkeys(OPS, 0), **expected}


@pytest.mark.parametrize("family", CONFIGS)
def test_the_loss_of_logits_uses_its_op(family, calls):
    model = tiny_model(family)
    tt.apply_tigon(model, cross_entropy=True, fused_linear_cross_entropy=False)
    model(**batch())
    assert calls["cross_entropy"] == 1
    assert calls["linear_cross_entropy"] == 0
