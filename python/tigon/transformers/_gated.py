"""act(gate)·up with the activation module of a Hugging Face model."""

import torch
from torch import nn

from tigon import ops


def gated(activation: nn.Module, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """activation(gate)·up; fused where the activation is SiLU or GELU. gate, up: [..., features]."""
    kind = type(activation).__name__
    if kind in ("SiLU", "SiLUActivation"):
        return ops.swiglu(gate, up)
    if kind in ("GELUTanh", "NewGELUActivation"):
        return ops.geglu(gate, up, approximate="tanh")
    if kind == "GELUActivation":
        return ops.geglu(gate, up, approximate="none")
    product: torch.Tensor = activation(gate) * up
    return product
