import re
from pathlib import Path

import comparing
import pytest
import references
import tigon
import torch
from comparing import LAYOUTS

SHAPES = [(1, 1), (1, 64), (7, 1), (5, 33), (2, 3, 65), (64,), (3, 1, 2, 2049), (130, 512)]


def leaf(*shape, device, dtype, mean=0.0):
    return (torch.randn(*shape, device=device) + mean).to(dtype).requires_grad_()


def check_against_f64(*arguments, **options):
    # dx is a difference of terms of the size of dy·rstd, nothing at all in a row of one element.
    comparing.check_against_f64(*arguments, **{"grad_floor": 1.0, **options})


def names(shape):
    return "x".join(map(str, shape))


@pytest.mark.parametrize("shape", SHAPES, ids=names)
def test_rms_norm(shape, device, dtype):
    x, w = leaf(*shape, device=device, dtype=dtype), leaf(shape[-1], device=device, dtype=dtype, mean=1)
    check_against_f64(tigon.ops.rms_norm, references.rms_norm, [x, w])


@pytest.mark.parametrize("casting", ["llama", "gemma", "none"])
@pytest.mark.parametrize(("offset", "eps"), [(0.0, 1e-6), (1.0, 1e-6), (0.0, 0.1)])
def test_rms_norm_options(casting, offset, eps, device, dtype):
    x, w = leaf(9, 40, device=device, dtype=dtype), leaf(40, device=device, dtype=dtype)
    check_against_f64(
        lambda x, w: tigon.ops.rms_norm(x, w, eps, offset, casting),
        lambda x, w: references.rms_norm(x, w, eps, offset),
        [x, w],
    )


def test_rms_norm_without_weight(device, dtype):
    check_against_f64(tigon.ops.rms_norm, references.rms_norm, [leaf(9, 40, device=device, dtype=dtype)])


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_the_weight_may_have_another_type(weight_dtype, device, dtype):
    x = leaf(9, 40, device=device, dtype=dtype)
    w, b = (leaf(40, device=device, dtype=weight_dtype, mean=1) for _ in range(2))
    coarser = max(dtype, weight_dtype, key=lambda t: torch.finfo(t).eps)
    y = tigon.ops.rms_norm(x, w)
    assert y.dtype == dtype
    check_types = torch.autograd.grad(y.float().sum(), (x, w))
    assert [g.dtype for g in check_types] == [dtype, weight_dtype]
    units = 8 * torch.finfo(coarser).eps / torch.finfo(dtype).eps
    check_against_f64(tigon.ops.rms_norm, references.rms_norm, [x, w], grad_units=units)
    check_against_f64(tigon.ops.layer_norm, references.layer_norm, [x, w, b], grad_units=units)


def test_llama_rounds_before_the_weight(device):
    x = leaf(4, 64, device=device, dtype=torch.bfloat16)
    w = leaf(64, device=device, dtype=torch.bfloat16, mean=1)
    normed = references.rms_norm(x.double()).to(torch.bfloat16)
    assert torch.equal(tigon.ops.rms_norm(x, w, casting_mode="llama"), normed * w)
    assert not torch.equal(tigon.ops.rms_norm(x, w, casting_mode="gemma"), normed * w)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, device, dtype):
    change = LAYOUTS[layout]
    x, r = (change(torch.randn(4, 5, 24, device=device).to(dtype)).requires_grad_() for _ in range(2))
    w, b = (change(torch.randn(2, 24, device=device).to(dtype))[0].requires_grad_() for _ in range(2))
    for ours, reference, leaves in [
        (tigon.ops.rms_norm, references.rms_norm, [x, w]),
        (tigon.ops.layer_norm, references.layer_norm, [x, w, b]),
        (tigon.ops.fused_add_rms_norm, references.fused_add_rms_norm, [x, r, w]),
    ]:
        check_against_f64(ours, reference, leaves, upstream_layout=change)


@pytest.mark.parametrize("shape", SHAPES, ids=names)
def test_fused_add_rms_norm(shape, device, dtype):
    x, r = (leaf(*shape, device=device, dtype=dtype) for _ in range(2))
    w = leaf(shape[-1], device=device, dtype=dtype, mean=1)
    if dtype == torch.float32:
        check_against_f64(tigon.ops.fused_add_rms_norm, references.fused_add_rms_norm, [x, r, w])
    else:  # the sum is rounded before it is normed, which the reference has to follow

        def reference(x, r, w):
            total = x + r
            rounded = total + (total.to(dtype).double() - total).detach()
            return references.rms_norm(rounded, w), rounded

        check_against_f64(tigon.ops.fused_add_rms_norm, reference, [x, r, w])


def test_fused_add_rms_norm_with_one_result_used(device):
    x, r, w = (leaf(*s, device=device, dtype=torch.float32) for s in [(5, 16), (5, 16), (16,)])
    upstream = torch.randn(5, 16, device=device)
    _, total = tigon.ops.fused_add_rms_norm(x, r, w)
    dx, dr, dw = torch.autograd.grad(total, (x, r, w), upstream, allow_unused=True)
    assert torch.equal(dx, upstream)
    assert torch.equal(dr, upstream)
    assert dw is None
    y, _ = tigon.ops.fused_add_rms_norm(x, r, w)
    got = torch.autograd.grad(y, (x, r, w), upstream)
    want = torch.autograd.grad(tigon.ops.rms_norm(x + r, w), (x, r, w), upstream)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("shape", SHAPES, ids=names)
def test_layer_norm(shape, device, dtype):
    x = leaf(*shape, device=device, dtype=dtype, mean=0.5)
    w, b = (leaf(shape[-1], device=device, dtype=dtype, mean=1) for _ in range(2))
    largest_rstd = 1e-5**-0.5 if shape[-1] == 1 else 1.0
    check_against_f64(tigon.ops.layer_norm, references.layer_norm, [x, w, b], grad_floor=largest_rstd)


@pytest.mark.parametrize("given", ["nothing", "weight", "bias"])
def test_layer_norm_without(given, device, dtype):
    x, p = leaf(9, 40, device=device, dtype=dtype), leaf(40, device=device, dtype=dtype)
    if given == "nothing":
        check_against_f64(tigon.ops.layer_norm, references.layer_norm, [x])
    else:
        check_against_f64(
            lambda x, p: tigon.ops.layer_norm(x, **{given: p}),
            lambda x, p: references.layer_norm(x, **{given: p}),
            [x, p],
        )


def test_layer_norm_far_from_zero(device):
    """Statistics in f32 of rows held whole: a mean of 1000 standard deviations leaves the result exact."""
    x = (torch.randn(4, 512, device=device) + 1000).requires_grad_()
    check_against_f64(tigon.ops.layer_norm, references.layer_norm, [x], units=1024, grad_units=1024)


def test_refusals(device):
    x, w = torch.randn(3, 8, device=device), torch.randn(8, device=device)
    with pytest.raises(ValueError, match=r"casting_mode is 'lama'.*'llama', 'gemma', 'none'"):
        tigon.ops.rms_norm(x, w, casting_mode="lama")
    with pytest.raises(ValueError, match=r"'weight' has the wrong shape.*\[8\].*\[7\]"):
        tigon.ops.rms_norm(x, w[:7])
    with pytest.raises(ValueError, match="residual"):
        tigon.ops.fused_add_rms_norm(x, x.half(), w)
    with pytest.raises(
        ValueError, match=r"'residual' has the wrong shape; expected \[1, 3, 8\] \(as x\), got \[3, 1, 8\]"
    ):
        tigon.ops.fused_add_rms_norm(x[None], x[:, None], w)
    with pytest.raises(TypeError, match="'x' is not a tensor"):
        tigon.ops.rms_norm.__globals__["_native"].rmsnorm_forward([1.0], None, None, None, 1e-6, 0.0, 0)
    with pytest.raises(NotImplementedError, match=r"'x' is of torch\.complex64"):
        tigon.ops.rms_norm(x.to(torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_large_results(dtype):
    """Huge pages are asked for where they are written, which changes nothing around them."""
    x, w = torch.randn(6000, 1024).to(dtype).requires_grad_(), torch.randn(1024).to(dtype).requires_grad_()
    comparing.check_against_f64(tigon.ops.rms_norm, references.rms_norm, [x, w], grad_units=16)


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="this kernel has no huge pages"
)
def test_large_results_are_to_be_huge_pages():
    y = tigon.ops.rms_norm(torch.randn(20000, 1024))  # beyond what an allocator keeps: a mapping of its own
    middle, inside, flags = y.data_ptr() + y.nbytes // 2, False, []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if (span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            inside = int(span[1], 16) <= middle < int(span[2], 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line.split()
    assert "hg" in flags
