"""The residual addition and the RMS normalisation after it, as a module."""

import torch
from torch import nn

from tigon import ops
from tigon.transformers._init import initial


class TigonFusedAddRMSNorm(nn.Module):
    """(x, residual) -> (norm of x + residual, x + residual); each [..., hidden_size]. ``in_place`` chooses nothing here."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str = "llama",
        init_fn: str = "ones",
        in_place: bool = False,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(initial(init_fn, hidden_size))
        self.variance_epsilon = eps
        self.offset = offset
        self.casting_mode = casting_mode

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ops.fused_add_rms_norm(
            hidden_states, residual, self.weight, self.variance_epsilon, self.offset, self.casting_mode
        )

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}, offset={self.offset}"
