import pytest
import references
import tigon
import torch
from comparing import LAYOUTS, check_against_f64

OPS = {
    "swiglu": (tigon.ops.swiglu, references.swiglu),
    "geglu tanh": (tigon.ops.geglu, references.geglu),
    "geglu erf": (
        lambda a, b: tigon.ops.geglu(a, b, approximate="none"),
        lambda a, b: references.geglu(a, b, approximate="none"),
    ),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (7, 1), (2, 3, 65), (33,), (100, 1031)], ids=str)
def test_values_and_gradients(op, shape, device, dtype):
    a, b = ((2 * torch.randn(*shape, device=device)).to(dtype).requires_grad_() for _ in range(2))
    check_against_f64(*OPS[op], [a, b])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(op, layout, device, dtype):
    a, b = (LAYOUTS[layout](torch.randn(4, 5, 24, device=device).to(dtype)).requires_grad_() for _ in range(2))
    check_against_f64(*OPS[op], [a, b], upstream_layout=LAYOUTS[layout])


@pytest.mark.parametrize("op", OPS)
def test_halves_of_one_tensor(op, device, dtype):
    packed = torch.randn(2, 5, 48, device=device).to(dtype).requires_grad_()
    ours, reference = OPS[op]
    check_against_f64(lambda p: ours(*p.chunk(2, -1)), lambda p: reference(*p.chunk(2, -1)), [packed])


@pytest.mark.parametrize("op", OPS)
def test_the_same_tensor_twice(op, device):
    a = torch.randn(5, 24, device=device, requires_grad=True)
    ours, reference = OPS[op]
    check_against_f64(lambda a: ours(a, a), lambda a: reference(a, a), [a])


def test_large_gates_stay_finite(device, dtype):
    a = torch.tensor([[-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4]], device=device).to(dtype).requires_grad_()
    b = torch.full_like(a, 2.0, requires_grad=True)
    for ours, _ in OPS.values():
        c = ours(a, b)
        da, db = torch.autograd.grad(c, (a, b), torch.ones_like(c))
        assert c.isfinite().all()
        assert da.isfinite().all()
        assert db.isfinite().all()


def test_refusals(device):
    a = torch.randn(3, 8, device=device)
    with pytest.raises(ValueError, match="approximate is 'erf'"):
        tigon.ops.geglu(a, a, approximate="erf")
    with pytest.raises(ValueError, match="'b' has the wrong shape"):
        tigon.ops.swiglu(a, a[:, :4])
    for op in (tigon.ops.swiglu, tigon.ops.geglu):
        with pytest.raises(
            ValueError, match=r"'b' has the wrong shape; expected \[2, 3, 8\] \(as a\), got \[3, 2, 8\]"
        ):
            op(a.expand(2, 3, 8), a[:, None].expand(3, 2, 8))
