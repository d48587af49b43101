"""What cannot be patched is refused with words that help."""

import pytest
import tigon.transformers as tt
import torch
from tigon.transformers import _layout
from tigon.transformers._families import FAMILY_OF
from tiny_models import tiny_config, tiny_model
from transformers.models.llama import modeling_llama


def refusal(**switches):
    with pytest.raises(tt.UnknownLayoutError) as raised:
        tt.apply_tigon_to_llama(**switches)
    text = str(raised.value)
    assert "Transformers 5." in text
    assert "expected" in text
    assert "=False" in text
    return text


@pytest.mark.usefixtures("fresh_checks")
class TestChangedLayouts:
    def test_a_class_is_gone(self, monkeypatch):
        monkeypatch.delattr(modeling_llama, "LlamaMLP")
        assert "has no LlamaMLP" in refusal()

    def test_a_norm_with_an_offset(self, monkeypatch):
        def forward(self, x):
            y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            return (1 + self.weight) * y.to(x.dtype)

        monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", forward)
        assert "LlamaRMSNorm computes something else" in refusal()

    def test_a_norm_that_rounds_elsewhere(self, monkeypatch):
        def forward(self, x):
            y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            return (self.weight.float() * y).to(x.dtype)

        monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", forward)
        assert "rms_norm=False" in refusal()

    def test_a_rotation_of_other_pairs(self, monkeypatch):
        from transformers.models.glm4.modeling_glm4 import apply_rotary_pos_emb

        monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", apply_rotary_pos_emb)
        assert "rope=False" in refusal()

    def test_an_mlp_with_more_in_it(self, monkeypatch):
        def forward(self, x):
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x)) * self.multiplier

        monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", forward)
        assert "multiplier" in refusal()

    def test_logits_that_are_scaled(self, monkeypatch):
        from transformers.models.granite.modeling_granite import GraniteForCausalLM

        monkeypatch.setattr(modeling_llama.LlamaForCausalLM, "forward", GraniteForCausalLM.forward)
        assert "logits_scaling" in refusal()

    def test_a_refusal_leaves_nothing_behind(self, monkeypatch):
        from transformers.models.granite.modeling_granite import GraniteForCausalLM

        rope = modeling_llama.apply_rotary_pos_emb
        monkeypatch.setattr(modeling_llama.LlamaForCausalLM, "forward", GraniteForCausalLM.forward)
        refusal()
        assert modeling_llama.apply_rotary_pos_emb is rope
        tt.apply_tigon_to_llama(fused_linear_cross_entropy=False)  # what the message advises

    def test_a_family_that_is_not_there(self, monkeypatch):
        import dataclasses

        gone = dataclasses.replace(FAMILY_OF["llama"], package="llama99")
        with pytest.raises(tt.UnknownLayoutError, match=r"there is no transformers\.models\.llama99"):
            _layout.find(gone)


@pytest.mark.usefixtures("fresh_checks")
def test_the_default_type_does_not_matter():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        tt.apply_tigon_to_llama()
    finally:
        torch.set_default_dtype(before)


def test_both_losses():
    with pytest.raises(ValueError, match="cannot both be True"):
        tt.apply_tigon_to_llama(cross_entropy=True)


def test_a_model_of_another_family():
    with pytest.raises(ValueError, match=r"without any LlamaAttention.*apply_tigon\(model\)"):
        tt.apply_tigon_to_llama(model=tiny_model("gemma"))


def test_a_model_type_without_patches():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8))
    with pytest.raises(ValueError, match=r"'gpt2'.*expected one of gemma"):
        tt.apply_tigon(model)
    with pytest.raises(ValueError, match="no config"):
        tt.apply_tigon(torch.nn.Linear(2, 2))


def test_an_unknown_switch():
    with pytest.raises(TypeError, match="geglu"):
        tt.apply_tigon(tiny_model("llama"), geglu=True)


def test_auto_model(tmp_path):
    config = tiny_config("llama")
    model = tt.AutoTigonForCausalLM.from_config(config, rope=False)
    assert "forward" not in vars(model.model.layers[0].self_attn)
    assert "forward" in vars(model.model.norm)
    model.save_pretrained(tmp_path)
    loaded = tt.AutoTigonForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16, swiglu=False)
    assert loaded.dtype == torch.bfloat16
    assert "forward" not in vars(loaded.model.layers[0].mlp)
    assert "forward" in vars(loaded)
    loaded, found = tt.AutoTigonForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert "forward" in vars(loaded)
    assert not found["missing_keys"]
