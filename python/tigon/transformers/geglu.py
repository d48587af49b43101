"""The MLP of Gemma and its relatives."""

import torch

from tigon.transformers._gated import GEGLU, GEGLU_EXACT, gated_mlp
from tigon.transformers._mlp import GatedMLP, configured_activation


class TigonGEGLUMLP(GatedMLP):
    """down_proj(gelu(gate_proj(x))·up_proj(x)); ``config`` gives hidden_size and intermediate_size.

    The tanh form of gelu unless the config's activation is "gelu", the exact form. [..., hidden_size] -> the same.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = GEGLU_EXACT if configured_activation(self.config) == "gelu" else GEGLU
        return gated_mlp(gate, x, self.gate_proj, self.up_proj, self.down_proj)
