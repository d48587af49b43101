"""RMS normalisation as a module."""

import torch
from torch import nn

from tigon import ops
from tigon.transformers._init import initial


class TigonRMSNorm(nn.Module):
    """(x·rstd)·(offset + weight) over the last dimension. [..., hidden_size] -> the same.

    ``casting_mode``: "llama" rounds x·rstd to x's type before the weight, "gemma" and "none" round once at the end.
    ``in_place`` and ``row_mode`` are Liger's and choose nothing here.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str = "llama",
        init_fn: str = "ones",
        in_place: bool = True,
        row_mode: bool | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(initial(init_fn, hidden_size)) if elementwise_affine else None
        self.variance_epsilon = eps
        self.offset = offset
        self.casting_mode = casting_mode

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(hidden_states, self.weight, self.variance_epsilon, self.offset, self.casting_mode)

    def extra_repr(self) -> str:
        shape = None if self.weight is None else tuple(self.weight.shape)
        return f"{shape}, eps={self.variance_epsilon}, offset={self.offset}, casting_mode={self.casting_mode!r}"
