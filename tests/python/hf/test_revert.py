"""Patches touch what was asked for, and go away without a trace."""

import copy
import pickle

import pytest
import tigon.transformers as tt
import torch
from tiny_models import CONFIGS, batch, tiny_model
from transformers.models.llama import modeling_llama

OWNERS = [
    modeling_llama,
    modeling_llama.LlamaRMSNorm,
    modeling_llama.LlamaMLP,
    modeling_llama.LlamaAttention,
    modeling_llama.LlamaForCausalLM,
]


def snapshot(*owners):
    return [dict(vars(owner)) for owner in owners]


def instances(model):
    return [*model.modules()]


def test_class_patches_are_reverted():
    before = snapshot(*OWNERS)
    tt.apply_tigon_to_llama()
    assert snapshot(*OWNERS) != before
    tt.revert_tigon()
    assert snapshot(*OWNERS) == before


def test_instance_patches_are_reverted():
    model = tiny_model("llama")
    before = snapshot(*instances(model))
    tt.apply_tigon(model)
    assert snapshot(*instances(model)) != before
    tt.revert_tigon(model)
    assert snapshot(*instances(model)) == before


@pytest.mark.parametrize("family", CONFIGS)
def test_reverting_everything_covers_classes_and_models(family):
    model, fresh = tiny_model(family), tiny_model(family)
    before = snapshot(*instances(model))
    expected = fresh(**batch()).logits
    tt.apply_tigon(model)
    tt.apply_tigon_to_type(family)
    tt.revert_tigon()
    assert snapshot(*instances(model)) == before
    assert torch.equal(model(**batch()).logits, expected)


def test_applying_twice_and_reverting_once():
    before = snapshot(*OWNERS)
    tt.apply_tigon_to_llama(rms_norm=False)
    tt.apply_tigon_to_llama(rope=False)
    tt.apply_tigon_to_llama(cross_entropy=True, fused_linear_cross_entropy=False)
    tt.revert_tigon()
    assert snapshot(*OWNERS) == before
    tt.revert_tigon()
    assert snapshot(*OWNERS) == before


def test_a_model_patched_under_a_patched_class():
    model = tiny_model("llama")
    expected = model(**batch()).logits
    tt.apply_tigon_to_llama()
    tt.apply_tigon(model)
    tt.revert_tigon(model)
    assert model(**batch()).logits is None  # the class is patched still
    tt.revert_tigon()
    assert torch.equal(model(**batch()).logits, expected)


def test_one_model_patched_leaves_the_others_alone():
    before = snapshot(*OWNERS)
    model, other = tiny_model("llama"), tiny_model("llama")
    expected = other(**batch()).logits
    others_before = snapshot(*instances(other))
    tt.apply_tigon(model)
    assert snapshot(*OWNERS) == before
    assert snapshot(*instances(other)) == others_before
    assert torch.equal(other(**batch()).logits, expected)


@pytest.mark.parametrize(
    ("switch", "owner"),
    [
        ("rope", modeling_llama),
        ("rms_norm", modeling_llama.LlamaRMSNorm),
        ("swiglu", modeling_llama.LlamaMLP),
        ("cross_entropy", modeling_llama.LlamaForCausalLM),
        ("fused_linear_cross_entropy", modeling_llama.LlamaForCausalLM),
    ],
)
def test_each_switch_touches_one_place(switch, owner):
    before = snapshot(*OWNERS)
    off = dict.fromkeys(["rope", "cross_entropy", "fused_linear_cross_entropy", "rms_norm", "swiglu"], False)
    tt.apply_tigon_to_llama(**off)
    assert snapshot(*OWNERS) == before
    tt.apply_tigon_to_llama(**{**off, switch: True})
    changed = [o for o, b in zip(OWNERS, before, strict=True) if dict(vars(o)) != b]
    assert changed == [owner]


def test_what_a_subclass_computes_is_kept():
    """By a patch of one model, with a warning; one of all models serves what the subclass calls of Hugging Face's."""

    class Halved(modeling_llama.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.loss = output.loss / 2
            return output

    class Nothing(modeling_llama.LlamaRMSNorm):
        def forward(self, hidden_states):
            return torch.zeros_like(hidden_states)

    model = tiny_model("llama")
    whole = model(**batch()).loss
    model.__class__ = Halved
    with pytest.warns(UserWarning, match=r"Halved has a forward of its own.*the LlamaForCausalLM\.forward that a"):
        tt.apply_tigon(model)
    assert "forward" in vars(model.model.norm)
    torch.testing.assert_close(model(**batch()).loss, whole / 2)
    tt.apply_tigon_to_llama()
    output = model(**batch())
    assert output.logits is None
    torch.testing.assert_close(output.loss, whole / 2)
    tt.revert_tigon()
    model = tiny_model("llama")
    model.model.norm.__class__ = Nothing
    with pytest.warns(UserWarning, match="Nothing has a forward of its own"):
        tt.apply_tigon(model)
    assert (model(batch()["input_ids"]).logits == 0).all()


def test_what_others_made_of_a_model_is_kept():
    """Accelerate's mixed precision wraps forward in this way."""
    model = tiny_model("llama")
    whole = model(**batch()).loss
    original = model.forward

    def halved(**inputs):
        output = original(**inputs)
        output.loss = output.loss / 2
        return output

    model.forward = halved
    with pytest.warns(UserWarning, match="LlamaForCausalLM has a forward of its own.*Patch a model before its"):
        tt.apply_tigon(model)
    torch.testing.assert_close(model(**batch()).loss, whole / 2)
    tt.revert_tigon(model)
    assert model.forward is halved


def test_torch_is_not_touched():
    before = torch.nn.functional.cross_entropy
    tt.apply_tigon_to_llama(cross_entropy=True, fused_linear_cross_entropy=False)
    assert torch.nn.functional.cross_entropy is before


def test_a_deep_copy_of_a_patched_model():
    model = tiny_model("llama")
    expected = model(**batch()).logits
    tt.apply_tigon(model)
    twin = copy.deepcopy(model)
    tt.revert_tigon(model)
    assert twin(**batch()).logits is None
    with torch.no_grad():
        twin.model.norm.weight.zero_()  # its own norm, not the model's
        assert twin.eval()(**batch()).logits.abs().max() == 0
    tt.revert_tigon(twin)
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin.train()(**batch()).logits, expected)


@pytest.mark.parametrize("family", ["llama", "mixtral", "phi3"])
def test_a_pickled_model_comes_back_unpatched(family):
    model = tiny_model(family)
    expected = copy.deepcopy(model)(**batch()).logits  # a call leaves hooks in Mixtral that cannot be pickled
    tt.apply_tigon(model)
    twin = pickle.loads(pickle.dumps(model))
    assert torch.equal(twin(**batch()).logits, expected)
    tt.apply_tigon(twin)
    assert twin(**batch()).logits is None
    tt.revert_tigon(twin)
    assert torch.equal(twin(**batch()).logits, expected)


def test_a_later_change_by_somebody_else_is_kept_and_told():
    model = tiny_model("llama")
    tt.apply_tigon(model)
    model.forward = mine = lambda *args, **kwargs: "mine"
    with pytest.warns(UserWarning, match="forward of LlamaForCausalLM was replaced again"):
        tt.revert_tigon(model)
    assert model.forward is mine


@pytest.mark.parametrize("patched", ["before", "during", "both"])
@pytest.mark.parametrize("reverted", ["during", "after"])
def test_hooks_of_accelerate_come_and_go(patched, reverted):
    hooks = pytest.importorskip("accelerate.hooks")
    model = tiny_model("llama")
    expected = model(**batch()).logits
    if patched != "during":
        tt.apply_tigon(model)
    for module in (model, model.model.norm):
        hooks.add_hook_to_module(module, hooks.ModelHook())
    if patched != "before":
        tt.apply_tigon(model)
    assert model(**batch()).logits is None
    if reverted == "during":
        tt.revert_tigon(model)
        assert torch.equal(model(**batch()).logits, expected)
    for module in (model, model.model.norm):
        hooks.remove_hook_from_module(module)
    if reverted == "after":
        assert model(**batch()).logits is None
        tt.revert_tigon(model)
    assert torch.equal(model(**batch()).logits, expected)
    assert not [m for m in model.modules() if "_tigon_replaced" in vars(m)]
    tt.apply_tigon(model)
    assert model(**batch()).logits is None


def test_models_are_not_kept_alive():
    import gc
    import weakref

    model = tiny_model("llama")
    tt.apply_tigon(model)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
