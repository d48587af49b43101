"""Models whose head is their embedding: the gradient's two parts are added up in one tensor."""

import copy

import pytest
import tigon.transformers as tt
import torch
from tigon.ops import _ownership
from tigon.transformers import _causal_lm, _tied
from tiny_models import CONFIGS, assert_same, batch, loss_and_gradients, tiny_model
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture
def tied(monkeypatch):
    """How often a tied embedding was used as one."""
    calls, op = [], _tied.tied_embedding
    monkeypatch.setattr(_causal_lm, "tied_embedding", lambda *args: calls.append(1) or op(*args))
    return calls


def both(family="llama", **changes):
    model = tiny_model(family, tie_word_embeddings=True, **changes)
    patched = copy.deepcopy(model)
    tt.apply_tigon(patched)
    return model, patched


@pytest.mark.parametrize("padding", [None, 5])
@pytest.mark.parametrize("family", CONFIGS)
def test_gradients(family, padding, tied):
    model, patched = both(family, pad_token_id=padding)
    ids = batch()["input_ids"]
    ids[0, 3:5] = 5  # twice, and where it is padding without a gradient
    assert_same(model, patched, input_ids=ids)
    assert bool(tied) == (type(model.get_input_embeddings()) is nn.Embedding)  # Gemma's are more than a lookup


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant, tied):
    model, patched = both()
    for m in (model, patched):
        m.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert_same(model, patched)
    assert tied


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_the_first_call(reentrant, tied):
    """What is found out once is found out there, and not when the checkpoint computes again."""
    model, patched = both()
    _tied._alone.cache_clear()
    factor = torch.ones((), requires_grad=True)
    for m in (model, patched):
        loss = checkpoint(lambda factor, m=m: m(**batch()).loss * factor, factor, use_reentrant=reentrant)
        loss.backward()
    want, got = model.lm_head.weight.grad, patched.lm_head.weight.grad
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * want.abs().max().item())
    assert tied


def test_gradients_accumulate_and_graphs_can_be_kept(tied):
    model, patched = both()
    for m in (model, patched):
        loss = m(**batch()).loss
        loss.backward(retain_graph=True)
        loss.backward()
        m(**batch(seed=2)).loss.backward()
    want, got = model.lm_head.weight.grad, patched.lm_head.weight.grad
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * want.abs().max().item())
    assert len(tied) == 2


def test_embeddings_from_outside(tied):
    model, patched = both()
    embeds = torch.randn(2, 12, 32)
    assert_same(model, patched, input_ids=None, inputs_embeds=embeds)
    assert not tied


def frozen(model):
    model.lm_head.weight.requires_grad_(False)


def hooked(model):
    model.model.embed_tokens.register_forward_hook(lambda module, args, output: output * 2)


def untied(model):
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())


def ids_are_watched(model):
    model.model.register_forward_pre_hook(
        lambda module, args, named: (args, {**named, "input_ids": named["input_ids"].flip(1)}), with_kwargs=True
    )


def ids_are_used_otherwise(model):
    class Flipping(type(model.model)):
        def forward(self, input_ids=None, **named):
            return super().forward(input_ids=input_ids.flip(1), **named)

    model.model.__class__ = Flipping


@pytest.mark.parametrize("change", [frozen, hooked, untied, ids_are_watched, ids_are_used_otherwise])
def test_where_it_is_left_alone(change, tied):
    model, patched = both()
    for m in (model, patched):
        change(m)
    assert_same(model, patched)
    assert not tied


def test_without_gradients(tied):
    _, patched = both()
    with torch.no_grad():
        assert patched(**batch()).logits is None
    assert not tied


class Gives(torch.autograd.Function):
    """A gradient for the head, in a tensor that the test may hold."""

    @staticmethod
    def forward(ctx, head, kept):
        ctx.shape, ctx.kept = head.shape, kept
        return head.new_zeros(())

    @staticmethod
    def backward(ctx, upstream):
        gradient = torch.ones(ctx.shape)
        ctx.kept.append(gradient if ctx.kept == ["hold"] else gradient.data_ptr())
        return gradient, None


def backward(kept):
    weight = torch.randn(7, 3, requires_grad=True)
    x, head = _tied.tied_embedding(weight, torch.tensor([[1, 4], [1, 6]]))
    torch.autograd.backward([x.sum(), Gives.apply(head, kept)])
    want = torch.ones(7, 3)
    want[[4, 6]] += 1
    want[1] += 2
    torch.testing.assert_close(weight.grad, want)
    return weight.grad


def test_the_heads_gradient_is_added_to_in_place():
    if not hasattr(torch.Tensor, "_use_count"):
        pytest.skip("this torch does not count who holds a tensor")
    kept = []
    assert backward(kept).data_ptr() == kept[0]


def test_a_gradient_that_somebody_holds_is_not_changed():
    kept = ["hold"]
    assert backward(kept).data_ptr() != kept[1].data_ptr()
    torch.testing.assert_close(kept[1], torch.ones(7, 3))


def test_nothing_is_changed_where_torch_does_not_count(monkeypatch):
    monkeypatch.setattr(_ownership, "_COUNTED", False)
    _tied._alone.cache_clear()
    kept = []
    assert backward(kept).data_ptr() != kept[0]
    _tied._alone.cache_clear()


def test_either_part_may_be_missing():
    weight = torch.randn(7, 3, requires_grad=True)
    ids = torch.tensor([2, 2, 5])
    x, head = _tied.tied_embedding(weight, ids)
    (rows,) = torch.autograd.grad(x.sum(), weight, retain_graph=True)
    torch.testing.assert_close(rows, torch.tensor([0, 0, 2, 0, 0, 1, 0]).float()[:, None].expand(7, 3))
    (whole,) = torch.autograd.grad((head * 3).sum(), weight)
    torch.testing.assert_close(whole, torch.full((7, 3), 3.0))


def test_bf16():
    model, patched = both(dtype=torch.bfloat16)
    (_, want), (_, got) = (loss_and_gradients(m, **batch()) for m in (model, patched))
    name = "model.embed_tokens.weight"
    torch.testing.assert_close(got[name], want[name], rtol=0.1, atol=0.05 * want[name].abs().max().item())
