import math
import sys
import weakref

import pytest
import references
import tigon
import torch
import torch.nn.functional as F
from comparing import LAYOUTS, assert_close, check_against_f64

OPTIONS = {
    "plain": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "smoothing": {"label_smoothing": 0.1},
    "z-loss": {"lse_square_scale": 1e-2},
    "softcap": {"softcap": 3.0},
    "ignore another index": {"ignore_index": 2},
    "all at once": {"label_smoothing": 0.2, "lse_square_scale": 1e-3, "softcap": 5.0, "reduction": "none"},
}


def logits_and_targets(*shape, device, dtype, ignored=0.3):
    logits = (3 * torch.randn(*shape, device=device)).to(dtype).requires_grad_()
    target = torch.randint(shape[-1], shape[:-1], device=device)
    return logits, torch.where(torch.rand(shape[:-1], device=device) < ignored, -100, target)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("shape", [(7, 33), (1, 1000), (2, 3, 65)], ids=str)
def test_values_and_gradients(options, weighted, shape, device, dtype):
    logits, target = logits_and_targets(*shape, device=device, dtype=dtype)
    target.view(-1)[0] = 1
    weight = torch.rand(shape[-1], device=device) if weighted else None
    options = OPTIONS[options]
    target = torch.where(target == -100, options.get("ignore_index", -100), target)
    check_against_f64(
        lambda x: tigon.ops.cross_entropy(x, target, weight, **options),
        lambda x: references.cross_entropy(x, target, weight=None if weight is None else weight.double(), **options),
        [logits],
        units=4 * torch.finfo(torch.float32).eps / torch.finfo(dtype).eps,  # losses are f32 for every type
        grad_units=4,
    )


def test_the_reference_is_pytorchs(device):
    """What PyTorch has of the options."""
    logits, target = logits_and_targets(50, 33, device=device, dtype=torch.float64)
    weight = torch.rand(33, device=device, dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        options = {"weight": weight, "label_smoothing": 0.1, "reduction": reduction}
        want = F.cross_entropy(logits, target, **options)
        torch.testing.assert_close(references.cross_entropy(logits, target, **options), want)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, device, dtype):
    logits, target = logits_and_targets(4, 5, 24, device=device, dtype=dtype)
    logits = LAYOUTS[layout](logits.detach()).requires_grad_()
    spread = torch.full((4, 5, 2), -100, device=device)
    spread[..., 0] = target
    check_against_f64(
        lambda x: tigon.ops.cross_entropy(x, spread[..., 0]), lambda x: references.cross_entropy(x, target), [logits]
    )


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_masked_classes_count_for_nothing(reduction, device, dtype):
    """As where a vocabulary is padded, or tokens are forbidden."""
    logits, target = logits_and_targets(6, 700, device=device, dtype=dtype)
    logits = logits.detach()
    logits[:, 40:] = torch.finfo(dtype).min
    target %= 40
    check_against_f64(
        lambda x: tigon.ops.cross_entropy(x, target, reduction=reduction),
        lambda x: references.cross_entropy(x, target, reduction=reduction),
        [logits.requires_grad_()],
    )


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_target_types(index_dtype, device):
    logits, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
    loss = tigon.ops.cross_entropy(logits, target.to(index_dtype))
    assert_close(loss, references.cross_entropy(logits.double(), target), torch.float32, 4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_all_targets_ignored(reduction, device, dtype):
    logits = torch.randn(5, 33, device=device).to(dtype).requires_grad_()
    loss = tigon.ops.cross_entropy(logits, torch.full((5,), -100, device=device), reduction=reduction)
    assert (loss == 0).all()
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert (gradient == 0).all()


def test_no_tokens(device):
    logits = torch.randn(0, 33, device=device, requires_grad=True)
    target = torch.empty(0, dtype=torch.int64, device=device)
    assert tigon.ops.cross_entropy(logits, target, reduction="none").shape == (0,)
    loss = tigon.ops.cross_entropy(logits, target)
    assert loss == 0
    assert torch.autograd.grad(loss, logits)[0].shape == (0, 33)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_what_is_reported(reduction, device, dtype):
    logits, target = logits_and_targets(2, 30, 17, device=device, dtype=dtype)
    out = tigon.ops.cross_entropy(
        logits,
        target,
        lse_square_scale=0.01,
        reduction=reduction,
        return_z_loss=True,
        return_token_accuracy=True,
        return_predicted_tokens=True,
    )
    assert out._fields == ("loss", "z_loss", "token_accuracy", "predicted_tokens")
    assert [t.requires_grad for t in out] == [True, False, False, False]
    counts = target != -100
    predicted = torch.where(counts, logits.argmax(-1), -1)
    assert torch.equal(out.predicted_tokens, predicted)
    z_loss = torch.where(counts, 0.01 * logits.double().logsumexp(-1).square(), 0)
    right = ((predicted == target) & counts).double()
    if reduction == "mean":
        z_loss = z_loss.sum() / counts.sum()
    if reduction == "sum":
        z_loss = z_loss.sum()
    if reduction != "none":
        right = right.sum() / counts.sum()
    assert_close(out.z_loss, z_loss, torch.float32, 4)
    assert_close(out.token_accuracy, right, torch.float32, 4)
    alone = tigon.ops.cross_entropy(logits, target, reduction=reduction, return_token_accuracy=True)
    assert (alone.z_loss, alone.predicted_tokens) == (None, None)
    assert torch.equal(alone.token_accuracy, out.token_accuracy)


def test_targets_out_of_range(device):
    """Nothing is written outside, and the fault does not stay hidden."""
    block = torch.randn(3, 4, 8, device=device)
    logits = block[1].clone().requires_grad_()
    for bad in (8, -1, 2**40, -(2**40)):
        target = torch.tensor([1, bad, 2, 3], device=device)
        if device.type == "cpu":
            with pytest.raises(ValueError, match=rf"'target' is out of range at position 1.*{bad}"):
                tigon.ops.cross_entropy(logits, target)
            continue
        losses = tigon.ops.cross_entropy(logits, target, reduction="none")
        assert losses.isnan().tolist() == [False, True, False, False]
        (gradient,) = torch.autograd.grad(losses, logits, torch.ones_like(losses))
        assert (gradient[1] == 0).all()


def test_inputs_are_only_read(device):
    """Liger zeroes ignored rows of the logits and overwrites the rest, with gradients and without."""
    logits, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
    before = logits.detach().clone()
    with torch.no_grad():
        tigon.ops.cross_entropy(logits, target)
    tigon.ops.cross_entropy(logits, target).backward()
    assert torch.equal(logits, before)


def test_bf16_losses_are_summed_in_f32(device):
    logits = torch.zeros(4099, 3, device=device, dtype=torch.bfloat16)
    target = torch.zeros(4099, dtype=torch.int64, device=device)
    total = tigon.ops.cross_entropy(logits, target, reduction="sum")
    assert total.dtype == torch.float32
    assert_close(total, torch.tensor(4099 * math.log(3), dtype=torch.float64, device=device), torch.float32, 4)


class TestGradientInForward:
    """Where a mean is to be differentiated, in a type of enough range, forward writes the gradient beside the loss."""

    @pytest.fixture
    def module(self):
        return sys.modules["tigon.ops.cross_entropy"]

    def test_backward_computes_nothing(self, device, module, monkeypatch):
        monkeypatch.setitem(module._backward.__kwdefaults__, "run", lambda *_: pytest.fail("computed in backward"))
        logits, target = logits_and_targets(20, 33, device=device, dtype=torch.bfloat16)
        (gradient,) = torch.autograd.grad(tigon.ops.cross_entropy(logits, target), logits)
        assert gradient.any()

    def test_is_handed_over_not_copied(self, device, module, monkeypatch):
        logits, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        pointers = []

        def watch(x):
            gradient = torch.empty_like(x)
            pointers.append(gradient.data_ptr())
            return gradient

        monkeypatch.setattr(module, "empty_rows", watch)
        tigon.ops.cross_entropy(logits, target).backward()
        assert pointers == [logits.grad.data_ptr()]

    @pytest.mark.parametrize("upstream", [1.0, 2.0, 1 / 3, 0.0, -1.0, math.nan])
    def test_takes_any_upstream_gradient(self, upstream, device, dtype):
        logits, target = logits_and_targets(20, 33, device=device, dtype=dtype, ignored=0)
        wide = logits.detach().double().requires_grad_()
        (got,) = torch.autograd.grad(tigon.ops.cross_entropy(logits, target) * upstream, logits)
        (want,) = torch.autograd.grad(references.cross_entropy(wide, target) * upstream, wide)
        if math.isnan(upstream):
            assert got.isnan().all()
        else:
            assert_close(got, want, dtype, 4)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_a_retained_graph_keeps_it(self, dtype, device):
        logits, target = logits_and_targets(20, 33, device=device, dtype=dtype)
        loss = tigon.ops.cross_entropy(logits, target)
        (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
        before = first.clone()
        (second,) = torch.autograd.grad(2 * loss, logits, retain_graph=True)
        assert torch.equal(first, before)
        assert torch.equal(second, 2 * first)
        first.zero_()
        second.zero_()
        assert torch.equal(torch.autograd.grad(loss, logits)[0], before)

    def test_whoever_else_holds_it_keeps_it(self, device):
        logits, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            loss = tigon.ops.cross_entropy(logits, target)
        gradient = kept[-1].clone()
        (got,) = torch.autograd.grad(2 * loss, logits)
        assert torch.equal(kept[-1], gradient)
        assert torch.equal(got, 2 * gradient)

    def test_the_loss_may_be_changed_in_place(self, device):
        """As Hugging Face's mixtures of experts do."""
        logits, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        (want,) = torch.autograd.grad(tigon.ops.cross_entropy(logits, target), logits)
        loss = tigon.ops.cross_entropy(logits, target)
        loss += logits.sum()
        assert torch.equal(torch.autograd.grad(loss, logits)[0], want + 1)

    def test_the_logits_are_let_go(self, device):
        x, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        logits = x * 2
        loss = tigon.ops.cross_entropy(logits, target)
        seen = weakref.ref(logits)
        del logits
        assert seen() is None
        loss.backward()

    @pytest.mark.parametrize("why", ["no_grad", "inference", "frozen", "float16", "sum", "none", "in_place"])
    def test_is_not_formed_without_need(self, why, device, module, monkeypatch):
        x, target = logits_and_targets(
            20, 33, device=device, dtype=torch.float16 if why == "float16" else torch.float32
        )
        logits = x.detach() if why == "frozen" else x * 2
        options = {"in_place": True} if why == "in_place" else {"reduction": why if why in ("sum", "none") else "mean"}
        monkeypatch.setattr(module, "empty_rows", lambda _: pytest.fail("a gradient was formed"))
        with torch.inference_mode(why == "inference"), torch.set_grad_enabled(why not in ("no_grad", "inference")):
            tigon.ops.cross_entropy(logits, target, **options)

    def test_second_derivatives_are_refused_at_any_upstream(self, device):
        """The upstream gradient does not lead back to the logits here."""
        logits, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        (first,) = torch.autograd.grad(tigon.ops.cross_entropy(logits, target), logits, create_graph=True)
        with pytest.raises(NotImplementedError, match="has no second derivative"):
            first.square().sum().backward()


class TestInPlace:
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_gives_the_same_gradient(self, reduction, device, dtype):
        x, target = logits_and_targets(20, 33, device=device, dtype=dtype)
        (want,) = torch.autograd.grad(tigon.ops.cross_entropy(x * 2, target, reduction=reduction), x)
        logits = x * 2
        loss = tigon.ops.cross_entropy(logits, target, reduction=reduction, in_place=True)
        (got,) = torch.autograd.grad(loss, logits)
        assert got.data_ptr() == logits.data_ptr()
        if reduction == "sum" or dtype == torch.float16:  # the other gradient is made in backward as well
            assert torch.equal(got * 2, want)
        else:  # forward's does not start from an lse that was rounded to be saved
            assert_close(got * 2, want, dtype, 8)

    def test_allows_one_backward(self, device):
        x, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        loss = tigon.ops.cross_entropy(x * 2, target, in_place=True)
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match=r"in_place=True.*no second one"):
            loss.backward()

    def test_others_who_saved_the_logits_notice(self, device):
        x, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        logits = x * 2
        other = logits.square().sum()
        tigon.ops.cross_entropy(logits, target, in_place=True).backward()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            other.backward()

    def test_refusals(self, device):
        x, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
        with pytest.raises(ValueError, match="leaf"):
            tigon.ops.cross_entropy(x, target, in_place=True)
        with pytest.raises(ValueError, match="leaf"):
            tigon.ops.cross_entropy(x.view(4, 5, 33), target.view(4, 5), in_place=True)
        with pytest.raises(ValueError, match="contiguous"):
            tigon.ops.cross_entropy((x * 2)[:, ::2], target, in_place=True)


def test_refusals(device):
    logits, target = logits_and_targets(20, 33, device=device, dtype=torch.float32)
    with pytest.raises(ValueError, match="reduction is 'avg'"):
        tigon.ops.cross_entropy(logits, target, reduction="avg")
    with pytest.raises(ValueError, match="softcap is 0"):
        tigon.ops.cross_entropy(logits, target, softcap=0.0)
    with pytest.raises(ValueError, match="'label_smoothing' is out of range"):
        tigon.ops.cross_entropy(logits, target, label_smoothing=2.0)
    with pytest.raises(ValueError, match="'target' has the wrong shape"):
        tigon.ops.cross_entropy(logits, target[:5])
    with pytest.raises(ValueError, match=r"'target' has the wrong shape; expected \[4, 5\].*got \[5, 4\]"):
        tigon.ops.cross_entropy(logits.view(4, 5, 33), target.view(4, 5).t())
    with pytest.raises(ValueError, match="'target' has the wrong type"):
        tigon.ops.cross_entropy(logits, target.float())
    with pytest.raises(NotImplementedError, match="class weights get no gradient"):
        tigon.ops.cross_entropy(logits, target, torch.ones(33, device=device, requires_grad=True))
