import sys

import pytest
import tigon
import torch
import torch.nn.functional as F
from comparing import LAYOUTS, check_against_f64
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint


@pytest.fixture(params=["as large products", "as small ones"], autouse=True)
def size(request, monkeypatch):
    """Large ones are an autograd function of the package, and in 16 bits on a GPU its products; small ones are torch's."""
    if request.param == "as large products":
        monkeypatch.setattr(sys.modules["tigon.ops._product"], "_LARGE_BYTES", 0)
        monkeypatch.setattr(sys.modules["tigon.ops.linear"], "may_be_ours", lambda x, out: True)


@pytest.fixture
def large(request, size):
    return request.node.callspec.params["size"] == "as large products"


def leaves(device, dtype, tokens=(2, 5), inputs=24, outputs=40):
    x, weight = torch.randn(*tokens, inputs, device=device), torch.randn(outputs, inputs, device=device) * 0.2
    return [t.to(dtype).requires_grad_() for t in (x, weight)]


def test_large_products_are_the_packages(large, device):
    node = type(tigon.ops.linear(*leaves(device, torch.bfloat16)).grad_fn).__name__
    assert ("tigon_linear" in node) == large


def test_values_and_gradients(device, dtype):
    check_against_f64(tigon.ops.linear, F.linear, leaves(device, dtype), grad_units=16)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, device, dtype):
    inputs = [LAYOUTS[layout](t.detach()).requires_grad_() for t in leaves(device, dtype)]
    check_against_f64(tigon.ops.linear, F.linear, inputs, upstream_layout=LAYOUTS[layout], grad_units=16)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (0, 7), (3, 0, 7)], ids=str)
def test_few_rows(shape, device, dtype):
    inputs = [torch.randn(s, device=device).to(dtype).requires_grad_() for s in (shape, (4, 7))]
    got, want = tigon.ops.linear(*inputs), F.linear(*inputs)
    torch.testing.assert_close(got, want)
    up = torch.ones_like(got)
    torch.testing.assert_close(torch.autograd.grad(got, inputs, up), torch.autograd.grad(want, inputs, up))


@pytest.mark.parametrize("frozen", [0, 1], ids=["x", "weight"])
def test_only_what_is_asked_for(frozen, device):
    inputs = leaves(device, torch.bfloat16)
    inputs[frozen].requires_grad_(False)
    y = tigon.ops.linear(*inputs)
    y.sum().backward()
    assert inputs[frozen].grad is None
    other = inputs[1 - frozen]
    torch.testing.assert_close(other.grad, torch.autograd.grad(F.linear(*inputs).sum(), other)[0])
    with torch.no_grad():
        torch.testing.assert_close(tigon.ops.linear(*inputs), y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast(dtype, device):
    inputs = leaves(device, dtype)
    with torch.autocast(device.type, torch.bfloat16):
        got, want = tigon.ops.linear(*inputs), F.linear(*inputs)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want)


def test_refuses_what_torch_refuses(device):
    x, weight = leaves(device, torch.bfloat16)
    with pytest.raises((RuntimeError, ValueError)):
        tigon.ops.linear(x, weight[:, 1:])
    with pytest.raises(RuntimeError, match="dtype"):
        tigon.ops.linear(x, weight.float())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_and_retained_graphs(reentrant, device):
    x, weight = leaves(device, torch.bfloat16)
    want = torch.autograd.grad(F.linear(x, weight).sum(), (x, weight))
    checkpoint(tigon.ops.linear, x, weight, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close((x.grad, weight.grad), want)
    total = tigon.ops.linear(x, weight).sum()
    for retains in (True, False):
        torch.testing.assert_close(torch.autograd.grad(total, (x, weight), retain_graph=retains), want)


def test_compiles_whole(device):
    torch._dynamo.reset()
    inputs = leaves(device, torch.bfloat16)
    compiled = torch.compile(tigon.ops.linear, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), F.linear(*inputs))


def test_what_is_large(monkeypatch):
    monkeypatch.undo()  # of the fixture: the real limit
    may_be_ours = sys.modules["tigon.ops._product"].may_be_ours

    def activations(*leading, width=2048, dtype=torch.bfloat16, device="cuda"):
        return torch.empty(*leading, width, dtype=dtype, device=device)

    with FakeTensorMode():
        assert may_be_ours(activations(8, 8192), 8)
        assert may_be_ours(activations(2, 8192), 8192)
        assert not may_be_ours(activations(8192), 8192)
        assert may_be_ours(activations(4096), 4097)  # rows that the library pads
        assert may_be_ours(activations(4096, width=2047), 4096)
        assert not may_be_ours(activations(4096), 4096)
        assert not may_be_ours(activations(32), 4097)
        assert not may_be_ours(activations(8, 8192, dtype=torch.float32), 8192)
        assert not may_be_ours(activations(8, 8192, device="cpu"), 8192)
