"""What autograd may ask of any op."""

import concurrent.futures
import sys

import pytest
import torch
from comparing import as_tuple
from op_cases import NAMES, make
from torch.utils.checkpoint import checkpoint


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def scalar(results):
    """A number in which every element of every result counts differently."""
    total = 0.0
    for r in as_tuple(results):
        total = total + (r.double() * torch.arange(1, r.numel() + 1, device=r.device).view(r.shape).cos()).sum()
    return total


def gradients(case, **options):
    return torch.autograd.grad(scalar(case.function(*case.leaves)), case.leaves, **options)


def test_gradcheck(name):
    case = make(name, "cpu", torch.float64)
    assert torch.autograd.gradcheck(case.function, case.leaves)


def test_the_same_bits_every_time(name, device):
    case = make(name, device)
    assert all(map(torch.equal, gradients(case), gradients(case)))


def test_the_graph_names_its_ops(device):
    case = make("rms_norm", device)
    assert "tigon_rms_normBackward" in repr(case.function(*case.leaves))


def test_retained_graph(name, device):
    case = make(name, device)
    total = scalar(case.function(*case.leaves))
    first = [g.clone() for g in torch.autograd.grad(total, case.leaves, retain_graph=True)]
    second = torch.autograd.grad(total, case.leaves, retain_graph=True)
    third = torch.autograd.grad(2 * total, case.leaves)
    torch.testing.assert_close(first, list(second))
    torch.testing.assert_close([2 * g for g in first], list(third))


def test_released_graph(name, device):
    case = make(name, device)
    total = scalar(case.function(*case.leaves))
    torch.autograd.grad(total, case.leaves)
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(total, case.leaves)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(name, reentrant, device):
    case = make(name, device)
    want = gradients(case)
    leaves = [leaf.detach().requires_grad_() for leaf in case.leaves]
    scalar(checkpoint(lambda *t: case.function(*(u * 1 for u in t)), *leaves, use_reentrant=reentrant)).backward()
    torch.testing.assert_close([leaf.grad for leaf in leaves], list(want))


def test_only_needed_gradients(name, device):
    """Each leaf alone requires a gradient, and gets the same one as all together."""
    case = make(name, device)
    want = gradients(case)
    for i, wanted in enumerate(want):
        leaves = [leaf.detach().requires_grad_(i == j) for j, leaf in enumerate(case.leaves)]
        (got,) = torch.autograd.grad(scalar(case.function(*leaves)), leaves[i])
        torch.testing.assert_close(got, wanted)
    everything_frozen = case.function(*(leaf.detach() for leaf in case.leaves))
    assert not any(r.requires_grad for r in as_tuple(everything_frozen))


def test_one_result_at_a_time(name, device):
    case = make(name, device)
    results = as_tuple(case.function(*case.leaves))
    sums = [torch.zeros_like(leaf) for leaf in case.leaves]
    for r in results:
        for total, g in zip(
            sums, torch.autograd.grad(scalar(r), case.leaves, retain_graph=True, allow_unused=True), strict=True
        ):
            total += 0 if g is None else g
    torch.testing.assert_close(
        sums, list(torch.autograd.grad(sum(scalar(r) for r in results), case.leaves)), rtol=1e-5, atol=1e-6
    )


def test_inputs_changed_after_forward(name, device):
    """Gradients that need an input which has changed since are refused, not wrong."""
    case = make(name, device)
    want = gradients(case)
    inputs = [leaf * 1 for leaf in case.leaves]
    total = scalar(case.function(*inputs))
    with torch.no_grad():
        inputs[0].add_(1)
    needs_no_input = (
        "rope",
        "interleaved_rope",
        "fused_add_rms_norm",
        "cross_entropy",
        "linear_cross_entropy_mean",
    )  # the last two have their gradients already
    if name in needs_no_input:
        torch.testing.assert_close(torch.autograd.grad(total, case.leaves), want)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(total, case.leaves)


def test_second_derivatives_are_refused(name, device):
    case = make(name, device)

    def total():
        return sum(r.double().sin().sum() for r in as_tuple(case.function(*case.leaves)))

    first = torch.autograd.grad(total(), case.leaves, create_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad(total(), case.leaves))
    with pytest.raises(NotImplementedError, match=r"has no second derivative.*use PyTorch's own op"):
        torch.autograd.grad(sum(g.sum() for g in first), case.leaves)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "forward_alone"])
def test_forward_mode_is_refused(name, device, recorded):
    case = make(name, device)
    first, *others = case.leaves if recorded else [t.detach() for t in case.leaves]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(first, torch.ones_like(first))
        with pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
            case.function(dual, *others)


def test_nothing_is_recorded_without_need(name, device):
    case = make(name, device)
    want = case.function(*case.leaves)
    with torch.no_grad():
        unrecorded = case.function(*case.leaves)
    for results in (unrecorded, case.function(*(t.detach() for t in case.leaves))):
        for got, expected in zip(as_tuple(results), as_tuple(want), strict=True):
            assert torch.equal(got, expected)
            assert not got.requires_grad


def test_transforms_are_refused(name, device):
    case = make(name, device)
    with pytest.raises(NotImplementedError, match=r"does not work under torch\.func transforms.*leading dimensions"):
        torch.func.vmap(lambda first: as_tuple(case.function(first, *case.leaves[1:])))(case.leaves[0][None])
    with pytest.raises(NotImplementedError, match=r"does not work under torch\.func transforms"):
        torch.func.grad(lambda first: scalar(case.function(first, *case.leaves[1:])))(case.leaves[0])
    result = as_tuple(case.function(*case.leaves))[0]
    # Our own explanation, or torch's where backward begins with an op of torch's.
    with pytest.raises(RuntimeError, match=r"is_grads_batched=True.*loop over the batch|Batching rule not implemented"):
        torch.autograd.grad(result, case.leaves[0], result.new_ones(2, *result.shape), is_grads_batched=True)


@pytest.mark.parametrize("inputs", ["gradients", "no gradients"])
def test_empty_batches(name, inputs, device):
    if "entropy" in name:
        pytest.skip("their targets have a shape; test_cross_entropy.py and test_linear_cross_entropy.py have this")
    case = make(name, device)
    batched = [leaf[:0].detach() if leaf.dim() > 1 else leaf.detach() for leaf in case.leaves]
    if inputs == "gradients":
        batched = [b.requires_grad_() for b in batched]
    results = as_tuple(case.function(*batched))
    assert all(r.shape[0] == 0 for r in results)
    if inputs == "gradients":
        for leaf, g in zip(batched, torch.autograd.grad(scalar(results), batched), strict=True):
            assert g.shape == leaf.shape
            assert (g == 0).all()


def test_hooks_and_accumulation(name, device):
    """.grad adds up over calls, as with any op."""
    case = make(name, device)
    want = gradients(case)
    for _ in range(3):
        scalar(case.function(*case.leaves)).backward()
    torch.testing.assert_close([leaf.grad / 3 for leaf in case.leaves], list(want), rtol=1e-5, atol=1e-6)


def test_threads_may_call_at_once(name):
    case = make(name, "cpu")
    want = gradients(case)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: gradients(case), range(32)):
            assert all(map(torch.equal, got, want))


# Which field of the backward kernel (python/binding/ops.cpp) receives the gradient of which leaf.
OUTPUT_FIELDS = {
    "rms_norm": {0: 4, 1: 5},
    "fused_add_rms_norm": {2: 6},  # x and residual share a gradient, which the kernel always computes
    "layer_norm": {0: 5, 1: 6, 2: 7},
}


@pytest.mark.parametrize("name", OUTPUT_FIELDS)
def test_kernels_are_asked_for_needed_gradients_only(name, device, monkeypatch):
    fields = OUTPUT_FIELDS[name]
    backward = sys.modules[f"tigon.ops.{name}"]._backward
    *others, kernel = backward.__defaults__
    asked = []

    def watch(*arguments):
        asked.append({leaf for leaf, field in fields.items() if arguments[field] is not None})
        kernel(*arguments)

    monkeypatch.setattr(backward, "__defaults__", (*others, watch))
    case = make(name, device)
    for i in range(len(case.leaves)):
        leaves = [leaf.detach().requires_grad_(i == j) for j, leaf in enumerate(case.leaves)]
        scalar(case.function(*leaves)).backward()
        assert asked.pop() == {i} & fields.keys()


def test_rope_rotates_needed_gradients_only(device, monkeypatch):
    backward = sys.modules["tigon.ops.rope"]._backward
    (kernel,) = backward.__defaults__
    asked = []

    def watch(*arguments):
        asked.append(arguments[:2])
        kernel(*arguments)

    monkeypatch.setattr(backward, "__defaults__", (watch,))
    case = make("rope", device)
    for i in range(2):
        leaves = [leaf.detach().requires_grad_(i == j) for j, leaf in enumerate(case.leaves)]
        scalar(case.function(*leaves)).backward()
        rotated, nothing = asked.pop()
        assert rotated.shape == leaves[i].shape
        assert nothing is None


def test_scaling_rounds_once(device, dtype):
    """A factor that the storage type cannot hold is not rounded to it first."""
    scale = sys.modules["tigon.ops._scale"]
    t = torch.randn(7, 33, device=device).to(dtype)
    factor = torch.tensor(1 / 3, device=device)
    want = (t.float() * factor).to(dtype)
    assert torch.equal(scale.scaled(t, factor), want)
    scale.scale_([t, None], factor)
    assert torch.equal(t, want)
