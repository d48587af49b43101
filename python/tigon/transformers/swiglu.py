"""The MLP of Llama and its relatives."""

from typing import Any

import torch

from tigon.transformers._gated import SWIGLU, gated_mlp
from tigon.transformers._mlp import GatedMLP, configured_activation


class TigonSwiGLUMLP(GatedMLP):
    """down_proj(silu(gate_proj(x))·up_proj(x)); ``config`` gives hidden_size, intermediate_size and hidden_act.

    [..., hidden_size] -> the same.
    """

    def __init__(self, config: Any, intermediate_size: int | None = None) -> None:
        super().__init__(config, intermediate_size)
        if configured_activation(config) not in ("silu", "swish"):
            raise ValueError(
                f"hidden_act is {configured_activation(config)!r}: TigonSwiGLUMLP expects 'silu' or 'swish'"
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gated_mlp(SWIGLU, x, self.gate_proj, self.up_proj, self.down_proj)
