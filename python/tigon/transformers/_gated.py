"""act(gate)·up, and the projection after it, with the modules of a Hugging Face model."""

from typing import Any, cast

import torch
from torch import nn

from tigon import ops
from tigon.transformers._bare import is_bare

Gate = tuple[str, ...]
"""The op, and for geglu the form of gelu."""

SWIGLU: Gate = ("swiglu",)
GEGLU: Gate = ("geglu", "tanh")
GEGLU_EXACT: Gate = ("geglu", "none")

_GATE_OF = {
    "SiLU": SWIGLU,
    "SiLUActivation": SWIGLU,
    "GELUTanh": GEGLU,
    "NewGELUActivation": GEGLU,
    "GELUActivation": GEGLU_EXACT,
}


def gated(activation: nn.Module | Gate, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """activation(gate)·up; fused where there is an op for the activation. gate, up: [..., features]."""
    kind = _gate(activation)
    if kind is None:
        return cast(torch.Tensor, cast(nn.Module, activation)(gate) * up)
    return _call(kind[0], gate, up, *kind[1:])


def gated_projection(
    activation: nn.Module | Gate, gate: torch.Tensor, up: torch.Tensor | None, down: nn.Module
) -> torch.Tensor:
    """down(activation(gate)·up), in one op where ``down`` is a product and nothing else, which takes less memory.

    gate, up: [..., features]; or up is None and gate has both side by side.
    """
    kind = _gate(activation)
    if kind is not None and _is_product(down):
        return _call(f"{kind[0]}_linear", gate, up, down.weight, *kind[1:])
    if up is None:
        gate, up = gate.chunk(2, dim=-1)
    return cast(torch.Tensor, down(gated(activation, gate, up)))


def _gate(activation: nn.Module | Gate) -> Gate | None:
    """The op of an activation, or None where there is none, or where calling it is more than that."""
    if isinstance(activation, tuple):
        return activation
    return _GATE_OF.get(type(activation).__name__) if is_bare(activation) else None


def _call(op: str, *arguments: Any) -> torch.Tensor:
    return cast(torch.Tensor, getattr(ops, op)(*arguments))


def _is_product(layer: nn.Module) -> bool:
    """Whether calling ``layer`` is input·weightᵀ: no bias, no adapter."""
    return type(layer) is nn.Linear and layer.bias is None and is_bare(layer)
