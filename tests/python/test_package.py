"""The package around the ops: import, the binding, its errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tigon
import torch
from tigon import _native, _torch

ROOT = Path(__file__).parents[2]
EXCHANGE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)  # torch 2.10 and later


def test_one_version():
    assert tigon.__version__ == re.search(r"project\(tigon VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    import importlib.metadata

    assert importlib.metadata.version("tigon") == tigon.__version__


def test_the_binding_is_for_every_python():
    assert Path(_native.__file__).name == "_native.abi3.so"
    assert (Path(_native.__file__).parent / "py.typed").exists()


def test_torch_is_asked_for():
    code = "import sys; sys.modules['torch'] = None\nimport tigon"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "tigon needs PyTorch 2.6 or later, which is not installed" in failed.stderr
    with pytest.raises(ImportError, match=r"needs PyTorch 2\.6 or later, and found 2\.5\.1"):
        _torch._require_version("2.5.1")


def test_importing_needs_no_compiler():
    code = "import os; os.environ['PATH'] = ''; import torch, tigon; print(tigon.ops.swiglu(torch.zeros(1), torch.ones(1)))"
    assert (
        "tensor([0.])"
        in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )


@pytest.fixture
def by_attributes():
    """Tensors read through Python, as with a torch that has no exchange table."""
    assert _torch.connect(None) is False
    yield
    _torch.connect(EXCHANGE)


def test_tensors_read_through_python(by_attributes, device, dtype):
    x, w = (
        torch.randn(3, 5, 8, device=device).to(dtype)[:, ::2].requires_grad_(),
        torch.randn(8, device=device).to(dtype),
    )
    y = tigon.ops.rms_norm(x, w)
    got = torch.autograd.grad(y.sum(), x)
    target = torch.tensor([1, 2, 3], device=device)
    loss = tigon.ops.cross_entropy(x[:, 0], target)
    _torch.connect(EXCHANGE)
    assert torch.equal(y, tigon.ops.rms_norm(x, w))
    assert torch.equal(loss, tigon.ops.cross_entropy(x[:, 0], target))
    assert torch.equal(got[0], torch.autograd.grad(tigon.ops.rms_norm(x, w).sum(), x)[0])


@pytest.mark.skipif(EXCHANGE is None, reason="before torch 2.10")
def test_scratch_comes_without_python(monkeypatch, device):
    calls = []
    monkeypatch.setattr(_torch, "_empty_bytes", lambda *asked: calls.append(asked))
    x, w = torch.randn(3, 8, device=device), torch.randn(8, device=device, requires_grad=True)

    def gradient():
        return torch.autograd.grad(tigon.ops.rms_norm(x, w).sum(), w)

    want = gradient()
    try:
        _torch.connect(EXCHANGE)
        assert torch.equal(*gradient(), *want)
        assert calls == []
        _torch.connect(None)
        with pytest.raises(TypeError, match="'scratch' is not a tensor"):
            gradient()
        assert len(calls) == 1
    finally:
        monkeypatch.undo()
        _torch.connect(EXCHANGE)


def test_other_exchange_tables_are_not_used():
    assert _torch.connect(object()) is False
    assert _torch.connect(EXCHANGE) is (EXCHANGE is not None)


def test_binding_errors():
    x, y, r = torch.randn(2, 4), torch.empty(2, 4), torch.empty(2)
    with pytest.raises(TypeError, match="rmsnorm_forward expects 7 arguments, got 2"):
        _native.rmsnorm_forward(x, y)
    with pytest.raises(TypeError, match="'x' is not a tensor"):
        _native.rmsnorm_forward(1.5, None, y, r, 1e-6, 0.0, 0)
    with pytest.raises(TypeError):
        _native.rmsnorm_forward(x, None, y, r, "much", 0.0, 0)
    with pytest.raises(ValueError, match="'y' is written to, but its strides"):
        _native.rmsnorm_forward(x, None, y.t().contiguous().t(), r, 1e-6, 0.0, 0)
    with pytest.raises(ValueError, match=r"rmsnorm_forward: 'x' is missing"):
        _native.rmsnorm_forward(None, None, y, r, 1e-6, 0.0, 0)
    with pytest.raises(ValueError, match="eps"):
        _native.rmsnorm_forward(x, None, y, r, float("nan"), 0.0, 0)
    with pytest.raises(NotImplementedError, match="'x' is on"):
        _native.rmsnorm_forward(x.to("meta"), None, y, r, 1e-6, 0.0, 0)
    for number in (2**32, -(2**31) - 1, 2**64):  # 32 bits of the first are a casting that exists
        with pytest.raises(OverflowError):
            _native.rmsnorm_forward(x, None, y, r, 1e-6, 0.0, number)


def test_torch_without_memory_is_an_error(monkeypatch, by_attributes):
    """Scratch that is nowhere, as of a fake tensor, and a number of threads that no machine has."""
    x, w = torch.randn(3, 8), torch.randn(8, requires_grad=True)
    y = tigon.ops.rms_norm(x, w).sum()
    with monkeypatch.context() as changed:  # over before by_attributes connects again
        changed.setattr(_torch, "_empty_bytes", lambda *_: torch.empty(0, dtype=torch.uint8))
        _torch.connect(None)
        with pytest.raises(RuntimeError, match=r"torch gave no memory for \d+ bytes of scratch"):
            torch.autograd.grad(y, w)
        changed.setattr(torch, "get_num_threads", lambda: 2**32 + 1)
        _torch.connect(None)
        with pytest.raises(OverflowError, match="'threads' is 4294967297: expected 32 bits"):
            tigon.ops.rms_norm(x)


def test_the_binding_alone_says_what_is_missing():
    code = (
        "import importlib.util as i\n"
        f"spec = i.spec_from_file_location('_native', {_native.__file__!r})\n"
        "i.module_from_spec(spec).rmsnorm_forward(None, None, None, None, 1e-6, 0.0, 0)"
    )
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "RuntimeError: tigon._native is not connected to torch" in failed.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
class TestOnGpu:
    def test_tensors_on_two_devices_are_refused(self):
        with pytest.raises(ValueError, match="'weight' is on cpu:0, but 'x' is on cuda:0"):
            tigon.ops.rms_norm(torch.ones(2, 4, device="cuda"), torch.ones(4))

    def test_the_current_stream_is_used(self):
        x = torch.randn(512, 4096, device="cuda")
        want = tigon.ops.rms_norm(x * 3)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            got = tigon.ops.rms_norm(x * 3)  # wrong unless it waits for the product on this stream
        stream.synchronize()
        assert torch.equal(got, want)

    def test_graphs_can_be_recorded(self):
        x = torch.randn(64, 256, device="cuda")
        target = torch.randint(256, (64,), device="cuda")
        tigon.ops.cross_entropy(tigon.ops.rms_norm(x), target)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = tigon.ops.cross_entropy(tigon.ops.rms_norm(x), target)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(loss, tigon.ops.cross_entropy(tigon.ops.rms_norm(x), target))

    def test_the_host_does_not_wait(self):
        x = torch.randn(64, 256, device="cuda", requires_grad=True)
        w = torch.randn(300, 256, device="cuda", requires_grad=True)
        target = torch.randint(300, (64,), device="cuda")

        def step():
            tigon.ops.linear_cross_entropy(tigon.ops.rms_norm(x), w, target).backward()

        step()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
