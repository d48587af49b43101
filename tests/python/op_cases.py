"""Every op once, small, for tests that treat them alike."""

from dataclasses import dataclass
from typing import Any

import tigon
import torch


@dataclass
class OpCase:
    name: str
    leaves: list[torch.Tensor]
    function: Any
    """Of the leaves; returns a tensor or a tuple of differentiable ones."""
    operator: Any = None
    """The torch.library operator and its arguments; None for an op made of others."""
    arguments: tuple[Any, ...] = ()


def _random(shapes, device, dtype):
    return [torch.randn(*shape, device=device, dtype=dtype).requires_grad_() for shape in shapes]


def make(name, device, dtype=torch.float32):
    ops, registered = tigon.ops, torch.ops.tigon
    if name == "rms_norm":
        leaves = _random([(2, 3, 8), (8,)], device, dtype)
        return OpCase(name, leaves, ops.rms_norm, registered.rms_norm, (*leaves, 1e-6, 0.0, 0))
    if name == "fused_add_rms_norm":
        leaves = _random([(2, 3, 8), (2, 3, 8), (8,)], device, dtype)
        return OpCase(name, leaves, ops.fused_add_rms_norm, registered.fused_add_rms_norm, (*leaves, 1e-6, 0.0, 0))
    if name == "layer_norm":
        leaves = _random([(2, 3, 8), (8,), (8,)], device, dtype)
        return OpCase(name, leaves, ops.layer_norm, registered.layer_norm, (*leaves, 1e-5))
    if name in ("rope", "interleaved_rope"):
        leaves = _random([(2, 4, 5, 8), (2, 2, 5, 8)], device, dtype)
        angle = torch.randn(1, 5, 3, device=device, dtype=dtype).repeat(1, 1, 2)
        cos, sin = angle.cos(), angle.sin()
        neighbours = name == "interleaved_rope"
        tables = (cos[..., :3], sin[..., :3]) if neighbours else (cos, sin)
        return OpCase(
            name,
            leaves,
            lambda q, k: ops.rope(q, k, cos, sin, interleaved=neighbours),
            registered.rope,
            (*leaves, *tables, None, neighbours),
        )
    if name in ("swiglu", "geglu"):
        leaves = _random([(2, 3, 8), (2, 3, 8)], device, dtype)
        more = () if name == "swiglu" else (0,)
        return OpCase(name, leaves, getattr(ops, name), getattr(registered, name), (*leaves, *more))
    if name in ("swiglu_linear", "geglu_linear"):
        leaves = _random([(2, 3, 8), (2, 3, 8), (5, 8)], device, dtype)
        return OpCase(name, leaves, getattr(ops, name))
    if name == "packed_swiglu_linear":
        leaves = _random([(2, 3, 16), (5, 8)], device, dtype)
        return OpCase(name, leaves, lambda packed, w: ops.swiglu_linear(packed, None, w))
    target = torch.tensor([[1, -100, 3], [0, 7, 2]], device=device)
    options = (-100, 0.1, 0.01, 5.0, 0)
    spelled = {"label_smoothing": 0.1, "lse_square_scale": 0.01, "softcap": 5.0}
    if name == "cross_entropy":
        leaves = _random([(2, 3, 8)], device, dtype)
        return OpCase(
            name,
            leaves,
            lambda x: ops.cross_entropy(x, target, **spelled),
            registered.cross_entropy,
            (*leaves, target, None, False, *options, True, True, True),
        )
    leaves = _random([(2, 3, 6), (9, 6), (9,)], device, dtype)
    reduction = name.removeprefix("linear_cross_entropy_")
    return OpCase(
        name,
        leaves,
        lambda x, w, b: ops.linear_cross_entropy(x, w, target, b, reduction=reduction, **spelled),
        registered.linear_cross_entropy,
        (
            *leaves,
            target,
            None,
            None,
            *options[:4],
            {"mean": 0, "none": 2}[reduction],
            *(0, 0, False, False),
            *(True, True, True),
            *(True, True, True),
        ),
    )


NAMES = [
    "rms_norm",
    "fused_add_rms_norm",
    "layer_norm",
    "rope",
    "interleaved_rope",
    "swiglu",
    "geglu",
    "swiglu_linear",
    "geglu_linear",
    "packed_swiglu_linear",
    "cross_entropy",
    "linear_cross_entropy_mean",
    "linear_cross_entropy_none",
]
