"""act(gate)·up, and the projections around it, with the modules of a Hugging Face model."""

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


def gated_mlp(
    activation: nn.Module | Gate, x: torch.Tensor, gate: nn.Module, up: nn.Module | None, down: nn.Module
) -> torch.Tensor:
    """down(activation(gate(x))·up(x)); or up is None and gate(x) has both side by side.

    With ``down`` in one op with the activation where it is a product and nothing else, which takes less memory.
    """
    a, b = _project(gate, x), None if up is None else _project(up, x)
    kind = _gate(activation)
    if kind is not None and _is_product(down):
        return _call(f"{kind[0]}_linear", a, b, down.weight, *kind[1:])
    if b is None:
        a, b = a.chunk(2, dim=-1)
    return cast(torch.Tensor, down(gated(activation, a, b)))


def _project(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return _call("linear", x, layer.weight) if _is_product(layer) else cast(torch.Tensor, layer(x))


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
