import pytest
import references
import tigon
import torch
import torch.nn.functional as F
from comparing import assert_close, in_f64


@pytest.mark.parametrize("amp_dtype", [torch.bfloat16, torch.float16])
def test_linear_cross_entropy_casts_as_linear(amp_dtype, device):
    x, w, b = (torch.randn(*s, device=device, requires_grad=True) for s in [(10, 16), (20, 16), (20,)])
    target = torch.randint(20, (10,), device=device)
    with torch.autocast(device.type, amp_dtype):
        assert F.linear(x, w, b).dtype == amp_dtype
        loss = tigon.ops.linear_cross_entropy(x, w, target, b)
    assert loss.dtype == torch.float32
    got = torch.autograd.grad(loss, (x, w, b))
    assert [g.dtype for g in got] == [torch.float32] * 3
    rounded = [t.detach().to(amp_dtype).requires_grad_() for t in (x, w, b)]
    want_loss = tigon.ops.linear_cross_entropy(*rounded[:2], target, rounded[2])
    assert torch.equal(loss, want_loss)
    for g, w in zip(got, torch.autograd.grad(want_loss, rounded), strict=True):
        assert torch.equal(g, w.float())


def test_other_ops_compute_in_the_type_of_their_input(device):
    x, w = torch.randn(4, 16, device=device), torch.randn(16, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        assert tigon.ops.rms_norm(x, w).dtype == torch.float32
        assert tigon.ops.rms_norm(x.bfloat16(), w).dtype == torch.bfloat16
        assert tigon.ops.swiglu(x, x).dtype == torch.float32
        assert tigon.ops.cross_entropy(x, torch.zeros(4, dtype=torch.int64, device=device)).dtype == torch.float32


def test_autocast_inside_compile(device):
    x, w = (torch.randn(*s, device=device, requires_grad=True) for s in [(10, 16), (20, 16)])
    target = torch.randint(20, (10,), device=device)

    def loss(x, w):
        with torch.autocast(device.type, torch.bfloat16):
            return tigon.ops.linear_cross_entropy(x, w, target)

    got = torch.autograd.grad(torch.compile(loss, fullgraph=True)(x, w), (x, w))
    torch.testing.assert_close(got, torch.autograd.grad(loss(x, w), (x, w)), rtol=1e-2, atol=1e-3)


def test_grad_scaler_sees_every_gradient(device):
    """Gradients times a loss scale that f16 cannot hold as a factor of its own."""
    x = torch.randn(10, 16, device=device, dtype=torch.float16, requires_grad=True)
    w = torch.randn(20, 16, device=device, dtype=torch.float16, requires_grad=True)
    target = torch.randint(20, (10,), device=device)
    loss = tigon.ops.linear_cross_entropy(x, w, target)
    plain = torch.autograd.grad(loss, (x, w), retain_graph=True)
    scaled = torch.autograd.grad(loss * 65536.0, (x, w))
    for p, s in zip(plain, scaled, strict=True):
        want = p.float() * 65536
        near = want.abs() < 60000
        torch.testing.assert_close(s.float()[near], want[near], rtol=2e-3, atol=65536 * 2**-14 * 2e-3)


@pytest.mark.parametrize("compiled", [False, True], ids=["direct", "compiled"])
def test_a_loss_scale_comes_before_rounding(compiled, device):
    """Without it most of these gradients are below the range of f16."""
    x = torch.randn(4096, 16, device=device, dtype=torch.float16, requires_grad=True)
    w = (torch.randn(20, 16, device=device) * 1e-3).half().requires_grad_()
    target = torch.randint(20, (4096,), device=device)
    loss = tigon.ops.linear_cross_entropy
    if compiled:
        loss = torch.compile(loss, backend="aot_eager", fullgraph=True)
    got = torch.autograd.grad(loss(x, w, target) * 65536.0, (x, w))
    doubles = in_f64([x, w])
    want = torch.autograd.grad(references.linear_cross_entropy(*doubles, target) * 65536.0, doubles)
    for g, expected in zip(got, want, strict=True):
        assert_close(g, expected, torch.float16, 4)
