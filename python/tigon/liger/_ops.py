"""Tigon's ops behind the arguments of Liger's dispatcher.

What Liger's arguments choose about the way of computing (``in_place``, ``row_mode``, ``mode``, …) has nothing to choose here.
"""

from typing import Any

import torch

from tigon import ops
from tigon.ops import CrossEntropyOutput
from tigon.transformers import functional


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = False,
    row_mode: bool | None = None,
    *,
    mode: str | None = None,
) -> torch.Tensor:
    """[..., hidden] -> the same."""
    return ops.rms_norm(x, weight, eps, offset, casting_mode)


def fused_add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str = "llama",
    in_place: bool = False,
    *,
    mode: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., hidden] twice -> (norm of the sum, the sum)."""
    return ops.fused_add_rms_norm(x, residual, weight, eps, offset, casting_mode)


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
    """silu(a·gate_multiplier)·b·down_multiplier; [..., features]."""
    if gate_multiplier != 1.0:
        a = a * gate_multiplier
    c = ops.swiglu(a, b)
    return c if down_multiplier == 1.0 else c * down_multiplier


def packed_swiglu(gate_up: torch.Tensor, in_place: bool = False) -> torch.Tensor:
    """The gate and the other factor side by side: [..., 2·features] -> [..., features]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return ops.swiglu(gate, up)


def geglu(a: torch.Tensor, b: torch.Tensor, *, mode: str | None = None) -> torch.Tensor:
    """gelu(a)·b with the tanh form of gelu; [..., features]."""
    return ops.geglu(a, b)


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    unsqueeze_dim: int = 1,
    rotary_dim: int | None = None,
    *,
    mode: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """q, k: [batch, heads, seq, D] whatever unsqueeze_dim says, as in Liger."""
    return functional.tigon_rope(q, k, cos, sin, None, 1, rotary_dim)


def cross_entropy(
    input: torch.Tensor, target: torch.Tensor, *options: Any, mode: str | None = None, **named: Any
) -> CrossEntropyOutput:
    """Options as in tigon.ops.cross_entropy; always the four results."""
    return _four(ops.cross_entropy(input, target, *options, **named))


def fused_linear_cross_entropy(
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    *options: Any,
    mode: str | None = None,
    **named: Any,
) -> CrossEntropyOutput:
    """Options as in tigon.ops.linear_cross_entropy; always the four results.

    Liger's options are the same twelve in the same order; what it has beyond them chooses how it computes.
    """
    return _four(ops.linear_cross_entropy(input, weight, target, *options[:12], **named))


def _four(result: torch.Tensor | CrossEntropyOutput) -> CrossEntropyOutput:
    return CrossEntropyOutput(result) if isinstance(result, torch.Tensor) else result
