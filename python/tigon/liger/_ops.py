"""Tigon's norms and gated activations behind the arguments of Liger's dispatcher.

What Liger's arguments choose about the way of computing (``in_place``, ``row_mode``, ``mode``, …) has nothing to choose here.
"""

import functools
from collections.abc import Callable

import torch

from tigon import ops
from tigon.liger._dtensor import gathered, is_dtensor, on_local_parts

_CASTING_MODES: dict[str | int, str] = {
    "llama": "llama",
    0: "llama",
    "gemma": "gemma",
    1: "gemma",
    "none": "none",
    -1: "none",
}


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str | int = "llama",
    in_place: bool = False,
    row_mode: bool | None = None,
    *,
    mode: str | None = None,
) -> torch.Tensor:
    """[..., hidden] -> the same. A DTensor is gathered first."""
    x, weight = gathered(x), gathered(weight)
    _check_weight(weight, x)
    return ops.rms_norm(x, weight, eps, offset, _casting(casting_mode))


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str | int = "llama",
    in_place: bool = False,
    *,
    mode: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., hidden] twice -> (norm of the sum, the sum), of x's type."""
    _check_weight(weight, x)
    return ops.fused_add_rms_norm(x, residual.to(x.dtype), weight, eps, offset, _casting(casting_mode))


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    mode: str | None = None,
) -> torch.Tensor:
    """[..., hidden] -> the same."""
    return ops.layer_norm(x, weight, bias, eps)


def swiglu(
    a: torch.Tensor,
    b: torch.Tensor,
    gate_multiplier: float = 1.0,
    down_multiplier: float = 1.0,
    *,
    mode: str | None = None,
) -> torch.Tensor:
    """silu(a·gate_multiplier)·b·down_multiplier; [..., features]. Of DTensors each process takes its own part."""
    if is_dtensor(a) or is_dtensor(b):
        local = functools.partial(swiglu, gate_multiplier=gate_multiplier, down_multiplier=down_multiplier)
        parts: torch.Tensor = on_local_parts(local, a, b)
        return parts
    if gate_multiplier != 1.0:
        a = a * gate_multiplier
    c = _gated(ops.swiglu, a, b)
    return c if down_multiplier == 1.0 else c * down_multiplier


def packed_swiglu(gate_up: torch.Tensor, in_place: bool = False) -> torch.Tensor:
    """The gate and the other factor side by side: [..., 2·features] -> [..., features]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return ops.swiglu(gate, up)


def geglu(a: torch.Tensor, b: torch.Tensor, *, mode: str | None = None) -> torch.Tensor:
    """gelu(a)·b with the tanh form of gelu; [..., features]."""
    return _gated(ops.geglu, a, b)


def _gated(op: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of two types: computed in the wider, given back in a's."""
    if a.dtype == b.dtype:
        return op(a, b)
    wide = torch.promote_types(a.dtype, b.dtype)
    return op(a.to(wide), b.to(wide)).to(a.dtype)


def _casting(mode: str | int) -> str:
    assert mode in _CASTING_MODES, f"casting_mode is {mode!r}: expected one of 'llama' (or 0), 'gemma' (1), 'none' (-1)"
    return _CASTING_MODES[mode]


def _check_weight(weight: torch.Tensor | None, x: torch.Tensor) -> None:
    assert weight is None or weight.shape[0] == x.shape[-1], (
        f"the weight has {weight.shape[0]} elements: expected {x.shape[-1]}, the last dimension of x"
    )
