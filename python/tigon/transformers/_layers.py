"""Replacements for the forwards of Hugging Face's layers; parameters and attributes stay the layers' own."""

from collections.abc import Callable
from typing import Any

import torch

from tigon import ops
from tigon.transformers._families import Norm
from tigon.transformers._gated import gated, gated_mlp


def norm_forward(norm: Norm) -> Callable[..., torch.Tensor]:
    """The forward of a family's RMSNorm."""
    eps, offset, casting_mode = norm.eps, norm.offset, norm.casting_mode

    def forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(hidden_states, self.weight, getattr(self, eps), offset, casting_mode)

    return forward


def _separate_mlp(self: Any, x: torch.Tensor) -> torch.Tensor:
    return gated_mlp(self.act_fn, x, self.gate_proj, self.up_proj, self.down_proj)


def _packed_mlp(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    return gated_mlp(self.activation_fn, hidden_states, self.gate_up_proj, None, self.down_proj)


def _experts_gate(self: Any, gate_up_out: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up_out.chunk(2, dim=-1)
    return gated(self.act_fn, gate, up)


# For each layout of _families: the method to replace, and its replacement.
MLP_METHOD: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
    "separate": ("forward", _separate_mlp),
    "packed": ("forward", _packed_mlp),
    "experts": ("_apply_gate", _experts_gate),
}
