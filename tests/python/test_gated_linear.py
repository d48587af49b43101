import gc
import sys

import pytest
import references
import tigon
import torch
import torch.nn.functional as F
from comparing import LAYOUTS, check_against_f64
from torch.utils.checkpoint import checkpoint

module = sys.modules["tigon.ops.gated_linear"]
OPS = {
    "swiglu": (tigon.ops.swiglu_linear, tigon.ops.swiglu, references.swiglu),
    "geglu tanh": (tigon.ops.geglu_linear, tigon.ops.geglu, references.geglu),
    "geglu erf": (
        lambda a, b, w: tigon.ops.geglu_linear(a, b, w, approximate="none"),
        lambda a, b: tigon.ops.geglu(a, b, approximate="none"),
        lambda a, b: references.geglu(a, b, approximate="none"),
    ),
}


@pytest.fixture(params=OPS)
def op(request):
    return request.param


@pytest.fixture(params=["one tile", "tiles"])
def tiles(request, monkeypatch):
    if request.param == "tiles":
        monkeypatch.setattr(module, "_SMALLEST_TILE_BYTES", 1)


def leaves(device, dtype, tokens=(2, 5), features=200, hidden=24):
    shapes = [(*tokens, features), (*tokens, features), (hidden, features)]
    return [torch.randn(*shape, device=device).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.usefixtures("tiles")
def test_values_and_gradients(op, device, dtype):
    ours, _, reference = OPS[op]
    check_against_f64(ours, lambda a, b, w: F.linear(reference(a, b), w), leaves(device, dtype), grad_units=16)


@pytest.mark.usefixtures("tiles")
def test_side_by_side(op, device, dtype):
    ours, _, reference = OPS[op]
    a, b, w = leaves(device, dtype)
    packed = torch.cat((a, b), dim=-1).detach().requires_grad_()
    check_against_f64(
        lambda p, w: ours(p, None, w),
        lambda p, w: F.linear(reference(*p.chunk(2, dim=-1)), w),
        [packed, w],
        grad_units=16,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(op, layout, device):
    ours, _, reference = OPS[op]
    a, b, w = (LAYOUTS[layout](t.detach()).requires_grad_() for t in leaves(device, torch.float32))
    check_against_f64(
        ours, lambda a, b, w: F.linear(reference(a, b), w), [a, b, w], upstream_layout=LAYOUTS[layout], grad_units=16
    )


@pytest.mark.parametrize("shape", [(7,), (0, 7), (3, 0, 7)], ids=str)
def test_few_rows(op, shape, device):
    ours, apart, _ = OPS[op]
    a, b, w = torch.randn(shape, device=device), torch.randn(shape, device=device), torch.randn(4, 7, device=device)
    inputs = [t.requires_grad_() for t in (a, b, w)]
    got, want = ours(a, b, w), F.linear(apart(a, b), w)
    torch.testing.assert_close(got, want)
    up = torch.ones_like(got)
    torch.testing.assert_close(torch.autograd.grad(got, inputs, up), torch.autograd.grad(want, inputs, up))


def test_the_bits_of_the_two_ops(op, dtype):
    """On the CPU, where a product is the same one wherever its result goes."""
    ours, apart, _ = OPS[op]
    a, b, w = leaves("cpu", dtype)
    got, want = ours(a * 1, b * 1, w), F.linear(apart(a, b), w)
    assert torch.equal(got, want)
    up = torch.randn_like(got)
    for g, expected in zip(
        torch.autograd.grad(got, (a, b, w), up), torch.autograd.grad(want, (a, b, w), up), strict=True
    ):
        assert torch.equal(g, expected)


@pytest.mark.parametrize("amp_dtype", [torch.bfloat16, torch.float16])
def test_autocast(amp_dtype, device):
    a, b, w = leaves(device, torch.float32)
    with torch.autocast(device.type, amp_dtype):
        got = tigon.ops.swiglu_linear(a.to(amp_dtype), b.to(amp_dtype), w)
        want = F.linear(tigon.ops.swiglu(a.to(amp_dtype), b.to(amp_dtype)), w)
        from_f32 = tigon.ops.swiglu_linear(a, b, w)
    assert got.dtype == want.dtype == from_f32.dtype == amp_dtype
    torch.testing.assert_close(got, want)
    up = torch.randn_like(got)
    gradients = torch.autograd.grad(got, (a, b, w), up)
    assert [g.dtype for g in gradients] == [torch.float32] * 3
    torch.testing.assert_close(gradients, torch.autograd.grad(want, (a, b, w), up))


def test_backward_under_autocast(device):
    """Where forward ran in f32, autocast in backward does not make it fail, or less exact."""
    a, b, w = leaves(device, torch.float32)
    want = torch.autograd.grad(tigon.ops.swiglu_linear(a, b, w).sum(), (a, b, w))
    total = tigon.ops.swiglu_linear(a, b, w).sum()
    with torch.autocast(device.type, torch.bfloat16):
        got = torch.autograd.grad(total, (a, b, w))
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_refusals(device):
    a, b, w = leaves(device, torch.float32)
    with pytest.raises(ValueError, match="approximate is 'erf'"):
        tigon.ops.geglu_linear(a, b, w, approximate="erf")
    with pytest.raises(RuntimeError, match="dtype"):
        tigon.ops.swiglu_linear(a.bfloat16(), b.bfloat16(), w)
    with pytest.raises(ValueError, match="swiglu_linear: 'b' has the wrong shape"):
        tigon.ops.swiglu_linear(a, b.transpose(0, 1), w)


# What is kept and what is written over.


def test_only_the_inputs_are_kept(op, device):
    a, b, w = leaves(device, torch.float32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.data_ptr()), t)[1], lambda t: t):
        OPS[op][0](a, b, w)
    assert kept == [t.data_ptr() for t in (a, b, w)]


class Watched:
    """Runs the op on a + 0 and b + 0, whose memory it may have; ``look`` is given them first and returns what it keeps."""

    def __init__(self, device, look=lambda a, b: None):
        self.leaves = leaves(device, torch.float32)
        a, b, w = self.leaves
        self.want = torch.autograd.grad(F.linear(tigon.ops.swiglu(a, b), w).sin().sum(), (a, b, w))
        a, b = a + 0, b + 0  # nodes that save nothing themselves
        self.memory = a.data_ptr(), b.data_ptr()
        self.kept = look(a, b)
        self.gradients_of = a.grad_fn, b.grad_fn
        self.reused = [None, None]
        for i, node in enumerate(self.gradients_of):
            node.register_prehook(lambda given, i=i: self.note(i, given[0]))
        self.total = tigon.ops.swiglu_linear(a, b, w).sin().sum()

    def note(self, i, gradient):
        self.reused[i] = gradient.data_ptr() == self.memory[i]

    def backward(self, **options):
        got = torch.autograd.grad(self.total, self.leaves, **options)
        torch.testing.assert_close(got, self.want)
        return self.reused


def test_unshared_inputs_are_written_over(device):
    assert Watched(device).backward() == [True, True]


def test_side_by_side_is_written_over(device):
    a, b, w = leaves(device, torch.float32)
    packed = torch.cat((a, b), dim=-1)
    memory, seen = packed.data_ptr(), []
    packed.grad_fn.register_prehook(lambda given: seen.append(given[0].data_ptr()))
    total = tigon.ops.swiglu_linear(packed, None, w).sum()
    del packed
    got = torch.autograd.grad(total, (a, b, w))
    assert seen == [memory]
    torch.testing.assert_close(got, torch.autograd.grad(F.linear(tigon.ops.swiglu(a, b), w).sum(), (a, b, w)))


def test_a_retained_graph_keeps_its_inputs(device):
    watched = Watched(device)
    assert watched.backward(retain_graph=True) == [False, False]
    assert watched.backward(retain_graph=True) == [False, False]
    assert watched.backward() == [True, True]


def test_a_graph_of_gradients_keeps_its_inputs(device):
    watched = Watched(device)
    first = torch.autograd.grad(watched.total, watched.leaves, create_graph=True)
    torch.testing.assert_close(first, watched.want)
    assert watched.reused == [False, False]
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(sum(g.sum() for g in first), watched.leaves)


def same_values(kept):
    return torch.equal(kept[0], kept[1])


HOLDERS = {
    "a variable": lambda a, b: (a, a.clone()),
    "a detached tensor": lambda a, b: (a.detach(), a.clone()),
    "a view": lambda a, b: (a[1:], a[1:].clone()),
    "NumPy": lambda a, b: (torch.from_numpy(a.detach().numpy()), a.clone()),
    "its storage": lambda a, b: (torch.empty(0).set_(a.untyped_storage(), 0, a.shape), a.clone()),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_others_hold_is_not_written_over(holder, device):
    if holder == "NumPy" and device.type != "cpu":
        pytest.skip("NumPy's memory is the CPU's")
    if holder == "its storage" and device.type != "cpu":
        pytest.skip("made for the CPU")
    watched = Watched(device, HOLDERS[holder])
    assert watched.backward() == [False, True]
    assert same_values(watched.kept)


def test_what_another_node_saved_is_not_written_over(device):
    watched = Watched(device, lambda a, b: (a**2).sum())
    assert watched.backward() == [False, True]
    (gradient,) = torch.autograd.grad(watched.kept, watched.leaves[0])
    torch.testing.assert_close(gradient, 2 * watched.leaves[0])


def test_what_its_own_node_saved_is_not_written_over(device):
    """exp keeps its result, for which it has another tensor with the same memory."""
    a, b, w = leaves(device, torch.float32)
    got = torch.autograd.grad(tigon.ops.swiglu_linear(a.exp(), b.exp(), w).sum(), (a, b, w))
    want = torch.autograd.grad(F.linear(tigon.ops.swiglu(a.exp(), b.exp()), w).sum(), (a, b, w))
    torch.testing.assert_close(got, want)


def test_one_tensor_as_both_is_not_written_over(device):
    a, _, w = leaves(device, torch.float32)
    c = a * 1
    got = tigon.ops.swiglu_linear(c, c, w).sum()
    del c
    want = F.linear(tigon.ops.swiglu(a, a), w).sum()
    torch.testing.assert_close(torch.autograd.grad(got, (a, w)), torch.autograd.grad(want, (a, w)))


def test_leaves_and_lent_memory_are_not_written_over():
    numbers = torch.randn(3, 8).numpy()
    before = torch.from_numpy(numbers.copy())
    w = torch.randn(4, 8)
    total = tigon.ops.swiglu_linear(torch.from_numpy(numbers).requires_grad_(), torch.randn(3, 8), w).sum()
    total.backward()  # nobody holds the leaf but the graph; NumPy holds its memory
    assert torch.equal(torch.from_numpy(numbers), before)


class Keeping:
    """Hooks that keep what they are given, packed or unpacked."""

    def __init__(self):
        self.kept = []

    def keep(self, t):
        self.kept.append((t, t.clone()))
        return t


@pytest.mark.parametrize("which", ["packed", "unpacked"])
def test_hooks_of_saved_tensors_may_keep_them(which, device):
    keeping = Keeping()
    hooks = (keeping.keep, lambda t: t) if which == "packed" else (lambda t: t, keeping.keep)
    with torch.autograd.graph.saved_tensors_hooks(*hooks):
        watched = Watched(device)
    assert watched.backward(retain_graph=True) == [False, False]
    assert watched.backward() == [False, False]
    assert len(keeping.kept) >= 3
    assert all(map(same_values, keeping.kept))


def test_hooks_that_move_saved_tensors(device):
    with torch.autograd.graph.save_on_cpu():
        watched = Watched(device)
    watched.backward(retain_graph=True)
    watched.backward()


def test_hooks_of_gradients_may_keep_them(device):
    kept = []
    watched = Watched(device, lambda a, b: a.register_hook(lambda g: kept.append((g, g.clone()))) and None)
    watched.backward()
    assert same_values(kept[0])


@pytest.mark.parametrize("retains", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant, retains, device):
    if reentrant and retains:
        pytest.skip("reentrant checkpoints free what they recompute")
    inputs = leaves(device, torch.float32)
    a, b, w = inputs
    want = torch.autograd.grad(F.linear(tigon.ops.swiglu(a.sin(), b.sin()), w).sum(), inputs)
    total = checkpoint(lambda a, b: tigon.ops.swiglu_linear(a.sin(), b.sin(), w), a, b, use_reentrant=reentrant).sum()
    for repeat in range(2 if retains else 1):
        for leaf in inputs:
            leaf.grad = None
        total.backward(retain_graph=retains and repeat == 0)
        torch.testing.assert_close([leaf.grad for leaf in inputs], list(want))


def test_checkpoints_do_not_compute_the_product_again(device, monkeypatch):
    a, b, w = leaves(device, torch.float32)
    products, product = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda *args, **kwargs: products.append(1) or product(*args, **kwargs))
    total = checkpoint(lambda a, b: tigon.ops.swiglu_linear(a * 1, b * 1, w), a, b, use_reentrant=False).sum()
    total.backward()
    assert len(products) == 3  # forward, and the gradients of the product and of the weight


def test_backward_holds_no_product(device, monkeypatch):
    """At any time, beside what forward kept: dy, the gradient of the weight, and a tile of c and of dc."""
    monkeypatch.setattr(module, "_SMALLEST_TILE_BYTES", 1)
    a, b, w = (t.detach() for t in leaves(device, torch.float32, tokens=(512,), features=512, hidden=64))
    a, b, w = a.requires_grad_() * 1, b.requires_grad_() * 1, w.requires_grad_()
    whole = a.numel()
    total = tigon.ops.swiglu_linear(a, b, w).sum()
    del a, b
    gc.collect()
    largest, product = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda x, y, out: largest.append(out.numel()) or product(x, y, out=out))
    total.backward()
    assert max(largest) <= whole / 4
