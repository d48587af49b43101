"""Models with LoRA adapters, on any layer, patched before and after the adapters are added."""

import copy

import pytest
import tigon.transformers as tt
import torch
from tiny_models import batch, loss_and_gradients, tiny_model

peft = pytest.importorskip("peft")

ADAPTERS = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "mlp": {"target_modules": ["gate_proj", "up_proj", "down_proj"]},
    "trained head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "trained norm": {"target_modules": ["q_proj"], "modules_to_save": ["norm", "input_layernorm"]},
    "adapted head": {"target_modules": ["q_proj", "lm_head"]},
}


def with_adapters(model, name):
    torch.manual_seed(3)
    config = peft.LoraConfig(r=4, task_type="CAUSAL_LM", init_lora_weights=False, **ADAPTERS[name])
    return peft.get_peft_model(model, config)


def assert_same_step(model, patched):
    (expected, expected_gradients), (got, got_gradients) = (loss_and_gradients(m, **batch()) for m in (model, patched))
    torch.testing.assert_close(got.loss, expected.loss, rtol=2e-6, atol=1e-6)
    assert got_gradients.keys() == expected_gradients.keys()
    assert got_gradients
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(got_gradients[name], gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item())
    return got


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_adapters(name, when):
    model, patched = (tiny_model("llama", mlp_bias=False) for _ in range(2))
    if when == "before":
        tt.apply_tigon(patched)
    model, patched = with_adapters(model, name), with_adapters(patched, name)
    if when == "after":
        tt.apply_tigon(patched)
    got = assert_same_step(model, patched)
    assert (got.logits is None) == (name != "adapted head")  # LoRA on the head needs its logits


@pytest.mark.parametrize("name", ["mlp", "trained head", "adapted head"])
def test_compiles_whole(name):
    model = with_adapters(tiny_model("llama", mlp_bias=False), name)
    patched = copy.deepcopy(model)
    tt.apply_tigon(patched)
    patched.compile(fullgraph=True, backend="aot_eager")
    assert_same_step(model, patched)


@pytest.mark.parametrize("name", ["trained head", "trained norm"])
def test_trained_copies_are_used(name):
    model = with_adapters(tiny_model("llama"), name)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "modules_to_save" in key:
                parameter.mul_(1.5)
    patched = copy.deepcopy(model)
    tt.apply_tigon(patched)
    assert_same_step(model, patched)
    with model.disable_adapter(), patched.disable_adapter(), torch.no_grad():
        torch.testing.assert_close(patched(**batch()).loss, model(**batch()).loss)


def test_reverting_a_model_that_got_adapters():
    model = tiny_model("llama")
    tt.apply_tigon(model)
    model = with_adapters(model, "trained norm")
    tt.revert_tigon(model)
    assert model(**batch()).logits is not None
    assert not [m for m in model.modules() if "_tigon_replaced" in vars(m)]
