"""Norms, rope, gated activations and linear layers at the sizes that models have and beside them, option by option.

Other tests run them at small sizes, where other kernels or other branches of them serve.
"""

import pytest
import references
import tigon
import torch
import torch.nn.functional as F
from comparing import LAYOUTS, assert_close, check_against_f64, in_f64

HIDDEN = [4096, 4095, 4097, 5120, 16384, 16385]
HEADS = [64, 80, 96, 128, 256, 66, 130]  # the last two: no multiple of a vector
# Rows that start anywhere: in wider rows, at an odd address, with elements apart, and columns as rows.
ROWS = list(LAYOUTS)


def random(*shape, device, dtype, scale=1.0):
    return (scale * torch.randn(*shape, device=device)).to(dtype)


@pytest.mark.parametrize("casting", ["llama", "gemma", "none"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_rms_norm(hidden, offset, casting, device, dtype):
    x = random(3, hidden, device=device, dtype=dtype).requires_grad_()
    weight = random(hidden, device=device, dtype=dtype).requires_grad_()
    check_against_f64(
        lambda x, w: tigon.ops.rms_norm(x, w, 1e-6, offset, casting),
        lambda x, w: references.rms_norm(x, w, 1e-6, offset),
        [x, weight],
    )


@pytest.mark.parametrize("casting", ["llama", "gemma"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_fused_add_rms_norm(hidden, offset, casting, device, dtype):
    # In quarters, so that the sum is not rounded and the reference normalises the same numbers.
    x, residual = ((4 * torch.randn(3, hidden, device=device)).round().div(4).to(dtype) for _ in range(2))
    weight = random(hidden, device=device, dtype=dtype).requires_grad_()
    check_against_f64(
        lambda x, r, w: tigon.ops.fused_add_rms_norm(x, r, w, 1e-6, offset, casting),
        lambda x, r, w: references.fused_add_rms_norm(x, r, w, 1e-6, offset),
        [x.requires_grad_(), residual.requires_grad_(), weight],
    )


@pytest.mark.parametrize("given", ["nothing", "weight", "both"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_layer_norm(hidden, given, device, dtype):
    leaves = [random(3, hidden, device=device, dtype=dtype).requires_grad_()]
    leaves += [
        random(hidden, device=device, dtype=dtype).requires_grad_()
        for _ in range({"both": 2, "weight": 1}.get(given, 0))
    ]
    check_against_f64(tigon.ops.layer_norm, references.layer_norm, leaves)


@pytest.mark.parametrize("layout", ROWS)
@pytest.mark.parametrize("hidden", [4096, 4095])
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "swiglu", "geglu"])
def test_rows_that_start_anywhere(op, hidden, layout, device, dtype):
    lay = LAYOUTS[layout]
    others = {"rms_norm": [(hidden,)], "layer_norm": [(hidden,), (hidden,)]}.get(op, [(2, 3, hidden)])
    leaves = [lay(random(2, 3, hidden, device=device, dtype=dtype)).requires_grad_()]
    for shape in others:
        t = random(*shape, device=device, dtype=dtype)
        leaves.append((lay(t) if t.dim() > 1 else t).requires_grad_())
    check_against_f64(getattr(tigon.ops, op), getattr(references, op), leaves, upstream_layout=lay)


@pytest.mark.parametrize("approximate", ["tanh", "none", "swiglu"])
@pytest.mark.parametrize("features", [11008, 14336, 14337, 18943])
def test_gated(features, approximate, device, dtype):
    leaves = [random(3, features, device=device, dtype=dtype, scale=2.0).requires_grad_() for _ in range(2)]
    if approximate == "swiglu":
        check_against_f64(tigon.ops.swiglu, references.swiglu, leaves)
    else:
        check_against_f64(
            lambda a, b: tigon.ops.geglu(a, b, approximate), lambda a, b: references.geglu(a, b, approximate), leaves
        )


@pytest.mark.parametrize("features", [4096, 4095])
def test_halves_of_one_row(features, device, dtype):
    packed = random(5, 2 * features, device=device, dtype=dtype).requires_grad_()
    check_against_f64(
        lambda t: tigon.ops.swiglu(*t.chunk(2, dim=-1)), lambda t: references.swiglu(*t.chunk(2, dim=-1)), [packed]
    )


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("part", [1.0, 0.5, 0.25], ids=["all", "half", "quarter"])
@pytest.mark.parametrize("d", HEADS)
def test_rope(d, part, interleaved, device, dtype):
    rotary = int(d * part) // 2 * 2
    angle = torch.randn(2, 5, rotary // 2, device=device).repeat(1, 1, 2)
    cos, sin = angle.cos(), angle.sin()
    q, k = (random(2, 5, n, d, device=device, dtype=dtype).transpose(1, 2).requires_grad_() for n in (4, 2))
    rotate = references.rotate_neighbours if interleaved else references.rotate
    check_against_f64(
        lambda q, k: tigon.ops.rope(q, k, cos, sin, interleaved=interleaved),
        lambda q, k: tuple(rotate(t, cos.double(), sin.double()) for t in (q, k)),
        [q, k],
        units=2,
        grad_units=2,
    )


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("d", HEADS)
def test_rope_by_positions_of_a_slice_of_qkv(d, interleaved, device, dtype):
    """q and k are parts of one projection, so that rows lie apart and start at odd addresses."""
    angle = torch.randn(64, d // 2, device=device).repeat(1, 2)
    cos, sin = angle.cos(), angle.sin()
    positions = torch.randint(64, (2, 5), device=device)
    qkv = random(2, 5, 8 * d + 1, device=device, dtype=dtype).requires_grad_()
    rotate = references.rotate_neighbours if interleaved else references.rotate

    def heads(t):
        q, k = t[..., 1 : 4 * d + 1], t[..., 4 * d + 1 : 6 * d + 1]
        return q.unflatten(-1, (4, d)).transpose(1, 2), k.unflatten(-1, (2, d)).transpose(1, 2)

    check_against_f64(
        lambda t: tigon.ops.rope(*heads(t), cos, sin, positions, interleaved=interleaved),
        lambda t: tuple(rotate(h, cos[positions].double(), sin[positions].double()) for h in heads(t)),
        [qkv],
        units=2,
        grad_units=2,
    )


@pytest.mark.parametrize(
    ("rows", "hidden", "features"),
    [(64, 1024, 1024), (65, 1024, 1025), (64, 1025, 1024), (63, 1023, 1023), (1, 4095, 1025), (300, 257, 1031)],
    ids=str,
)
def test_linear(rows, hidden, features, device, dtype):
    """Products are compared with the sum of the sizes of their terms, which is what sums in f32 are exact to."""
    x = random(rows, hidden, device=device, dtype=dtype).requires_grad_()
    weight = random(features, hidden, device=device, dtype=dtype, scale=hidden**-0.5).requires_grad_()
    doubles = in_f64([x, weight])
    y, want = tigon.ops.linear(x, weight), F.linear(*doubles)
    upstream = random(rows, features, device=device, dtype=dtype)
    got = (y, *torch.autograd.grad(y, (x, weight), upstream))
    expected = (want, *torch.autograd.grad(want, doubles, upstream.double()))
    a, b, u = (t.detach().double().abs() for t in (x, weight, upstream))
    sizes = (a @ b.T, u @ b, u.T @ a)
    for result, exact, size in zip(got, expected, sizes, strict=True):
        assert result.dtype == dtype
        eps, ulp = torch.finfo(dtype).eps, torch.finfo(torch.float32).eps
        allowed = eps / 2 * exact.abs() + 16 * ulp * size + torch.finfo(dtype).smallest_normal
        worst = ((result.double() - exact).abs() / allowed).max().item()
        assert worst <= 1, f"{worst:.2f} times what is allowed"


def test_a_wrong_last_element_is_seen(dtype):
    """Of 4095: tolerances are those of one element, not of a row."""
    x = torch.randn(3, 4095).to(dtype)
    wrong = x.clone()
    wrong[1, -1] += 1.0
    with pytest.raises(AssertionError, match="epsilons"):
        assert_close(wrong, x.double(), dtype, 8)
