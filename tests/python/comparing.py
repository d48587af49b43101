"""Results against an f64 reference, in units of the storage type's epsilon; and the same values in other layouts."""

import torch


def assert_close(got, want, dtype, units, floor=0.0):
    """|got - want| within `units` epsilons of dtype, of the value itself and of the largest one (sums cancel), or floor."""
    assert got.shape == want.shape
    assert not want.isnan().any()
    if got.numel() == 0:
        return
    tolerance = units * torch.finfo(dtype).eps
    error = (got.double() - want.double()).abs()
    size = want.double().abs()
    allowed = tolerance * (size + size.max().clamp_min(floor))
    worst = (error / allowed.clamp_min(1e-300)).max().item()
    assert worst <= 1, f"{worst * units:.1f} epsilons of {dtype}, allowed are {units}"


def as_tuple(results):
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def in_f64(tensors):
    return [t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in tensors]


def check_against_f64(function, reference, leaves, units=4, grad_units=8, grad_floor=0.0, upstream_layout=lambda t: t):
    """Values and gradients of function(*leaves), beside reference(*leaves) in f64."""
    dtype = leaves[0].dtype
    doubles = in_f64(leaves)
    got, want = as_tuple(function(*leaves)), as_tuple(reference(*doubles))
    for g, w in zip(got, want, strict=True):
        assert_close(g, w, dtype, units)
    upstream = [upstream_layout(torch.randn(g.shape, device=g.device).to(g.dtype)) for g in got]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    wanted_doubles = [leaf for leaf in doubles if leaf.requires_grad]
    got_gradients = torch.autograd.grad(got, wanted, upstream)
    want_gradients = torch.autograd.grad(want, wanted_doubles, [u.double() for u in upstream])
    for leaf, g, w in zip(wanted, got_gradients, want_gradients, strict=True):
        assert g.dtype == leaf.dtype
        assert_close(g, w, dtype, grad_units, grad_floor)


def _in_wider_rows(t):
    wide = t.new_full((*t.shape[:-1], t.shape[-1] + 3), float("nan"))
    wide[..., 1:-2] = t
    return wide[..., 1:-2]


def _unaligned(t):
    flat = t.new_full((t.numel() + 1,), float("nan"))
    flat[1:] = t.reshape(-1)
    return flat[1:].view(t.shape)


def _transposed(t):
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def _every_second(t):
    wide = t.new_full((*t.shape[:-1], 2 * t.shape[-1]), float("nan"))
    wide[..., ::2] = t
    return wide[..., ::2]


# The same values with other strides or alignment.
LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "in wider rows": _in_wider_rows,
    "unaligned": _unaligned,
    "transposed": _transposed,
    "every second": _every_second,
}
