import pytest
import references
import tigon
import torch
from comparing import LAYOUTS, assert_close, check_against_f64, in_f64
from test_cross_entropy import OPTIONS
from tigon.ops import Chunk, linear_cross_entropy


def problem(*leading, hidden=24, classes=50, device, dtype, ignored=0.3):
    x = torch.randn(*leading, hidden, device=device).to(dtype).requires_grad_()
    weight = torch.randn(classes, hidden, device=device).div(hidden**0.5).to(dtype).requires_grad_()
    bias = torch.randn(classes, device=device).to(dtype).requires_grad_()
    target = torch.randint(classes, leading, device=device)
    target = torch.where(torch.rand(leading, device=device) < ignored, -100, target)
    target.view(-1)[:1] = 1
    return x, weight, bias, target


def loss_units(dtype, device):
    """The CPU keeps logits in f32, a GPU in the storage type."""
    return 8 * torch.finfo(torch.float32).eps / torch.finfo(dtype).eps if device.type == "cpu" else 4


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("biased", [False, True], ids=["", "biased"])
def test_values_and_gradients(options, biased, device, dtype):
    x, weight, bias, target = problem(2, 9, device=device, dtype=dtype)
    ce_weight = torch.rand(50, device=device) if biased else None
    options = OPTIONS[options]
    target = torch.where(target == -100, options.get("ignore_index", -100), target)
    wide_ce_weight = None if ce_weight is None else ce_weight.double()
    leaves = [x, weight, bias] if biased else [x, weight]
    check_against_f64(
        lambda x, w, b=None: linear_cross_entropy(x, w, target, b, ce_weight, **options),
        lambda x, w, b=None: references.linear_cross_entropy(x, w, target, b, wide_ce_weight, **options),
        leaves,
        units=loss_units(dtype, device),
        grad_units=8,
    )


@pytest.mark.parametrize(("tokens", "hidden", "classes"), [(1, 1, 2), (1, 8, 33), (33, 1, 7), (70, 65, 130)])
def test_sizes(tokens, hidden, classes, device, dtype):
    x, weight, _, target = problem(tokens, hidden=hidden, classes=classes, device=device, dtype=dtype)
    check_against_f64(
        lambda x, w: linear_cross_entropy(x, w, target),
        lambda x, w: references.linear_cross_entropy(x, w, target),
        [x, weight],
        units=loss_units(dtype, device),
        grad_units=8,
    )


@pytest.mark.parametrize(
    "chunk", [1, 3, 1000, "lean", Chunk(budget_bytes=1 << 12), Chunk(tokens=4, lean=True)], ids=str
)
@pytest.mark.parametrize("accum_dtype", [None, torch.float32], ids=["", "f32"])
def test_chunks_and_sums(chunk, accum_dtype, device, dtype):
    """A 16-bit dweight over many chunks is as exact as over one: Liger sums it in bf16."""
    x, weight, _, target = problem(70, device=device, dtype=dtype)
    check_against_f64(
        lambda x, w: linear_cross_entropy(x, w, target, accum_dtype=accum_dtype, chunk=chunk),
        lambda x, w: references.linear_cross_entropy(x, w, target),
        [x, weight],
        units=loss_units(dtype, device),
        grad_units=8,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, device, dtype):
    x, weight, _, target = problem(4, 5, device=device, dtype=dtype)
    x, weight = (LAYOUTS[layout](t.detach()).requires_grad_() for t in (x, weight))
    check_against_f64(
        lambda x, w: linear_cross_entropy(x, w, target),
        lambda x, w: references.linear_cross_entropy(x, w, target),
        [x, weight],
        units=loss_units(dtype, device),
        grad_units=8,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("upstream", [1.0, 1 / 3, 0.0])
def test_upstream_gradients(reduction, upstream, device, dtype):
    x, weight, bias, target = problem(20, device=device, dtype=dtype)
    doubles = in_f64([x, weight, bias])
    loss = linear_cross_entropy(x, weight, target, bias, reduction=reduction)
    want = references.linear_cross_entropy(*doubles[:2], target, doubles[2], reduction=reduction)
    got = torch.autograd.grad(loss.sum() * upstream, (x, weight, bias))
    for g, w in zip(got, torch.autograd.grad(want.sum() * upstream, doubles), strict=True):
        assert_close(g, w, dtype, 8)


def test_a_second_backward_is_right(device, dtype):
    """The first hands its gradients out and does not keep them; the second computes them again."""
    x, weight, bias, target = problem(20, device=device, dtype=dtype)
    loss = linear_cross_entropy(x, weight, target, bias)
    first = torch.autograd.grad(loss, (x, weight, bias), retain_graph=True)
    copies = [g.clone() for g in first]
    for factor in (1.0, -2.0):
        second = torch.autograd.grad(loss * factor, (x, weight, bias), retain_graph=True)
        for f, s in zip(first, second, strict=True):
            assert_close(s, f.double() * factor, dtype, 4)
    assert all(map(torch.equal, first, copies))


def test_gradients_are_handed_over_not_copied(device, monkeypatch):
    x, weight, bias, target = problem(20, device=device, dtype=torch.float32)
    pointers = []
    module = tigon.ops.linear_cross_entropy.__globals__
    allocate = module["_empty_gradients"]

    def watch(*arguments):
        gradients = allocate(*arguments)
        pointers.extend(g.data_ptr() for g in gradients)
        return gradients

    monkeypatch.setitem(module, "_empty_gradients", watch)
    linear_cross_entropy(x, weight, target, bias).backward()
    assert [t.grad.data_ptr() for t in (x, weight, bias)] == pointers


@pytest.mark.parametrize("frozen", [{"x"}, {"weight"}, {"bias"}, {"x", "bias"}, {"weight", "bias"}], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_frozen_inputs(frozen, reduction, device, monkeypatch):
    """A trainable head on a frozen backbone gets its gradient (Liger's does not), and only that is computed."""
    x, weight, bias, target = problem(20, device=device, dtype=torch.float32)
    leaves = {"x": x, "weight": weight, "bias": bias}

    def gradients():
        loss = linear_cross_entropy(x, weight, target, bias, reduction=reduction).sum()
        return torch.autograd.grad(loss, [t for t in leaves.values() if t.requires_grad])

    want = dict(zip(leaves, gradients(), strict=True))
    for name in frozen:
        leaves[name].requires_grad_(False)
    asked = []
    native = tigon.ops.linear_cross_entropy.__globals__["_native"]
    for direction in ("forward", "backward"):
        kernel = getattr(native, f"fused_linear_cross_entropy_{direction}")
        function = tigon.ops.linear_cross_entropy.__globals__[f"_{direction}"]

        def watch(*fields, kernel=kernel):
            asked.append({name for name, t in zip(leaves, fields[-3:], strict=True) if t is not None})
            kernel(*fields)

        monkeypatch.setitem(function.__kwdefaults__, "run", watch)
    got = dict(zip((n for n in leaves if n not in frozen), gradients(), strict=True))
    for name, gradient in got.items():
        assert torch.equal(gradient, want[name])
    assert set().union(*asked) == set(leaves) - frozen


def test_no_grad_computes_the_loss_alone(device, monkeypatch):
    x, weight, bias, target = problem(20, device=device, dtype=torch.float32)
    want = linear_cross_entropy(x, weight, target, bias)
    monkeypatch.setitem(
        tigon.ops.linear_cross_entropy.__globals__,
        "_empty_gradients",
        lambda *arguments: (None, None, None) if not any(arguments[-1]) else pytest.fail("gradients were asked for"),
    )
    with torch.no_grad():
        assert torch.equal(linear_cross_entropy(x, weight, target, bias), want)


def test_token_scaling(device):
    """Each token's loss times the probability of its target, taken as a constant."""
    x, weight, bias, target = problem(20, device=device, dtype=torch.float32)

    def reference(x, w, b, **options):
        with torch.no_grad():
            scale = torch.exp(-references.linear_cross_entropy(x, w, target, b, reduction="none"))
        return references.linear_cross_entropy(x, w, target, b, scale=scale, **options)

    for options in ({}, {"reduction": "none"}, {"reduction": "sum", "label_smoothing": 0.1, "lse_square_scale": 0.01}):
        check_against_f64(
            lambda x, w, b, options=options: linear_cross_entropy(x, w, target, b, use_token_scaling=True, **options),
            lambda x, w, b, options=options: reference(x, w, b, **options),
            [x, weight, bias],
            units=16,
            grad_units=16,
        )


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_what_is_reported(reduction, device):
    x, weight, bias, target = problem(2, 15, device=device, dtype=torch.float32)
    asked = {"return_z_loss": True, "return_token_accuracy": True, "return_predicted_tokens": True}
    out = linear_cross_entropy(x, weight, target, bias, lse_square_scale=0.01, reduction=reduction, **asked)
    logits = torch.nn.functional.linear(x, weight, bias)
    want = tigon.ops.cross_entropy(logits, target, lse_square_scale=0.01, reduction=reduction, **asked)
    for got, wanted in zip(out[:3], want[:3], strict=True):
        assert_close(got, wanted, torch.float32, 16)
    assert torch.equal(out.predicted_tokens, want.predicted_tokens)
    assert [t.requires_grad for t in out] == [True, False, False, False]


def test_all_targets_ignored_and_no_tokens(device, dtype):
    for tokens in (5, 0):
        x, weight, bias, target = problem(tokens, device=device, dtype=dtype)
        loss = linear_cross_entropy(x, weight, torch.full_like(target, -100), bias)
        assert loss == 0
        assert all((g == 0).all() for g in torch.autograd.grad(loss, (x, weight, bias)))


def test_targets_out_of_range(device):
    x, weight, _, target = problem(5, device=device, dtype=torch.float32)
    target[2] = 50
    if device.type == "cpu":
        with pytest.raises(ValueError, match="'target' is out of range at position 2"):
            linear_cross_entropy(x, weight, target)
    else:
        loss = linear_cross_entropy(x, weight, target)
        assert loss.isnan()


def test_other_types_of_parameters(device, dtype):
    x, weight, bias, target = problem(20, device=device, dtype=dtype)
    for other in (torch.float32, torch.bfloat16):
        w, b = (t.detach().to(other).requires_grad_() for t in (weight, bias))
        loss = linear_cross_entropy(x, w, target, b)
        gradients = torch.autograd.grad(loss, (x, w, b))
        assert [g.dtype for g in gradients] == [dtype, other, other]
        doubles = in_f64([x, w, b])
        want = references.linear_cross_entropy(*doubles[:2], target, doubles[2])
        coarsest = max(dtype, other, key=lambda t: torch.finfo(t).eps)
        for g, wanted in zip(gradients, torch.autograd.grad(want, doubles), strict=True):
            assert_close(g, wanted, coarsest, 8)


def test_refusals(device):
    x, weight, _, target = problem(5, device=device, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"accum_dtype is torch\.float16"):
        linear_cross_entropy(x, weight, target, accum_dtype=torch.float16)
    for chunk in (0, -1, True, "leaner", 2.5):
        with pytest.raises(ValueError, match="expected None, 'lean', a positive number of tokens"):
            linear_cross_entropy(x, weight, target, chunk=chunk)
    with pytest.raises(ValueError, match="tokens or budget_bytes"):
        Chunk(tokens=1, budget_bytes=1)
    with pytest.raises(ValueError, match="'weight' has the wrong shape"):
        linear_cross_entropy(x, weight[:, :5], target)
    with pytest.raises(ValueError, match=r"'target' has the wrong shape; expected \[1, 5\].*got \[5, 1\]"):
        linear_cross_entropy(x[None], weight, target[:, None])
