"""The MLP of Gemma and its relatives."""

import torch

from tigon import ops
from tigon.transformers._mlp import GatedMLP, configured_activation


class TigonGEGLUMLP(GatedMLP):
    """down_proj(gelu(gate_proj(x))·up_proj(x)); ``config`` gives hidden_size and intermediate_size.

    The tanh form of gelu unless the config's activation is "gelu", the exact form. [..., hidden_size] -> the same.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        form = "none" if configured_activation(self.config) == "gelu" else "tanh"
        y: torch.Tensor = self.down_proj(ops.geglu(self.gate_proj(x), self.up_proj(x), form))
        return y
