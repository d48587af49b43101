"""Layer normalisation as a module."""

import torch
from torch import nn

from tigon import ops
from tigon.transformers._init import initial


class TigonLayerNorm(nn.Module):
    """(x - mean)·rstd·weight + bias over the last dimension. [..., hidden_size] -> the same.

    The module always has a bias, as Liger's has; it starts at zero, or with ``bias=True`` at random, as Liger's does.
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6, bias: bool = False, init_fn: str = "ones") -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.variance_epsilon = eps
        self.weight = nn.Parameter(initial(init_fn, hidden_size))
        self.bias = nn.Parameter(torch.randn(hidden_size) if bias else torch.zeros(hidden_size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return ops.layer_norm(hidden_states, self.weight, self.bias, self.variance_epsilon)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}"
